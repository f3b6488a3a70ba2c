import { unlessAborted, wait } from '@holdfast/std'
import { Cancelled, cancelledBy, DeadlineExceeded } from './cancelled.ts'
import { type Deadline, type Limit, openDeadline } from './deadline.ts'
import { type Ended, enter } from './enter.ts'
import { type Group, type Left, runGroup } from './group.ts'
import { type Report, warn } from './report.ts'
import { disposerOf, type Resource } from './resources.ts'
import { assertOpen, leftMs, openNode, type ScopeNode } from './scope-node.ts'

/** A shield is for a record, never for the whole job. */
const SHIELD_MS_MAX = 60_000

/**
 * Where work lives: what begins in a scope has ended when the scope is left. `S` is what bodies in
 * it get, a scope with whatever its owner adds.
 */
export type Scoped<S> = {
  /** Aborts with a `Cancelled`. For everything that can be stopped: `fetch`, SDKs, child processes. */
  readonly signal: AbortSignal
  /**
   * Children that start together and end together. Leaves only when all have settled.
   *
   *     const { weather, news } = await scope.group((group) => ({
   *       weather: group.spawn(({ signal }) => fetchWeather(signal)),
   *       news: group.spawn(({ signal }) => fetchNews(signal)),
   *     }))
   *
   * @returns what the body returns, with children as their values
   * @throws the first failure, or an AggregateError if more failed until all had ended
   */
  group<const R>(body: (group: Group<S>, scope: S) => R | Promise<R>): Promise<Left<R>>
  /** A part of the work with a name, for reports; the scope is not left without it. */
  part<T>(name: string, body: (scope: S) => T | Promise<T>): Promise<T>
  /**
   * A limit in time, in milliseconds or as an instant; nested ones share the earliest.
   * @throws DeadlineExceeded when it passed before the body had ended
   */
  timeout<T>(limit: Limit, body: (scope: S, deadline: Deadline) => T | Promise<T>): Promise<T>
  /**
   * Lets a record be finished although the scope is cancelled, also when nobody waits for it any
   * more: the scope keeps hold of it. At most `ms` (up to 60,000).
   * @throws DeadlineExceeded when it took longer
   */
  shield<T>(limit: { ms: number }, body: (scope: S) => T | Promise<T>): Promise<T>
  /**
   * Keeps a resource until the scope is left: then it is disposed of, the latest first, within a
   * bound, whatever the scope's end. One that is still being opened when the scope is cancelled is
   * disposed of when it comes.
   */
  use<R extends Resource>(resource: R | Promise<R>): Promise<R>
  /** Rejects with the reason when the scope is cancelled. */
  sleep(ms: number): Promise<void>
  /** Milliseconds until the earliest deadline that holds here; Infinity if there is none. */
  leftMs(): number
}

// An interface, because a type may not speak of itself.
export interface Scope extends Scoped<Scope> {}

export type ScopeOptions = {
  /** Cancels the scope from outside. A reason that is a `Cancelled` is kept, any other means `cancel`. */
  signal?: AbortSignal
  /** For reports. */
  name?: string
  /** How long code may take to stop after a cancel before it is left behind; 2000. */
  stopMs?: number
  /** How long one resource may take to be disposed of; 2000. */
  disposeMs?: number
  /** Hears of code that does not do as it should; a warning of the process when left out. */
  onReport?: (report: Report) => void
}

/** Makes of a bare scope what bodies get. */
export type Extend<S> = (node: ScopeNode) => S

/** The outermost scope of some work. Nothing that `body` starts in it outlives the promise. */
export function withScope<T>(
  body: (scope: Scope) => T | Promise<T>,
  options?: ScopeOptions,
): Promise<T> {
  return withScopeOf<Scope, T>((scope) => scope, body, options)
}

/** The same, for scopes that can do more: `extend` adds to every scope what its bodies get. */
export async function withScopeOf<S, T>(
  extend: (scope: Scoped<S>) => S,
  body: (scope: S) => T | Promise<T>,
  { signal, name = 'scope', stopMs = 2000, disposeMs = 2000, onReport = warn }: ScopeOptions = {},
): Promise<T> {
  const node = openNode(null, { name, settings: { stopMs, disposeMs, report: onReport } })
  const inside: Extend<S> = (inner) => extend(scopeOf(inner, inside))
  const onAbort = () => signal && node.cancel(cancelledBy(signal))
  if (signal?.aborted) onAbort()
  signal?.addEventListener('abort', onAbort, { once: true })
  try {
    return await enter(node, () => body(inside(node)))
  } finally {
    signal?.removeEventListener('abort', onAbort)
  }
}

function scopeOf<S>(node: ScopeNode, extend: Extend<S>): Scoped<S> {
  const { settings, signal } = node
  return {
    signal,
    group: (body) => runGroup(node, extend, body),
    part(name, body) {
      const inner = openNode(node, { name, settings })
      return enter(inner, () => body(extend(inner)))
    },
    timeout(limit, body) {
      const inner = openNode(node, { name: 'timeout', settings })
      return limited(inner, limit, (deadline) => body(extend(inner), deadline))
    },
    shield({ ms }, body) {
      if (!(ms > 0 && ms <= SHIELD_MS_MAX)) {
        throw new RangeError(`a shield lasts more than 0 and at most ${SHIELD_MS_MAX} ms`)
      }
      const inner = openNode(node, { name: 'shield', settings, isShield: true })
      return limited(inner, ms, () => body(extend(inner)))
    },
    async use(resource) {
      assertOpen(node, 'use')
      if (!(resource instanceof Promise)) {
        node.disposers.push(disposerOf(resource))
        return resource
      }
      return acquire(node, resource)
    },
    async sleep(ms) {
      assertOpen(node, 'sleep')
      await wait(ms, signal)
    },
    leftMs: () => leftMs(node),
  }
}

function limited<T>(
  node: ScopeNode,
  limit: Limit,
  body: (deadline: Deadline) => T | Promise<T>,
): Promise<T> {
  let passed = false
  const deadline = openDeadline(limit, pass)
  function pass() {
    passed = !node.signal.aborted
    node.cancel(new Cancelled('deadline'))
  }
  node.deadline = deadline
  if (deadline.leftMs() === 0) pass()
  return enter(
    node,
    () => body(deadline),
    (ended) => {
      deadline.close()
      return passed ? exceeded(ended, deadline.at) : ended
    },
  )
}

/** The scope whose deadline it was says so, beside whatever else went wrong. */
function exceeded<T>(ended: Ended<T>, at: Date): Ended<T> {
  // It was there in time; only what was cleaned up after it was not.
  if (ended.kind === 'done' && !ended.late) return ended
  const others = ended.kind === 'failed' ? ended.failures : []
  return { kind: 'failed', failures: [new DeadlineExceeded(at), ...others] }
}

/** Whenever the resource comes, there is somebody who ends it. */
async function acquire<R extends Resource>(node: ScopeNode, opening: Promise<R>): Promise<R> {
  node.disposers.push(async () => {
    const opened = await opening.catch(() => null)
    if (opened) await disposerOf(opened)()
  })
  return unlessAborted(opening, node.signal)
}
