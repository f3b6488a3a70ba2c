import { invariant } from '@holdfast/std'
import { Cancelled } from './cancelled.ts'
import { type Ended, enter } from './enter.ts'
import { together } from './failures.ts'
import type { Extend } from './scope.ts'
import { assertOpen, openNode, type ScopeNode } from './scope-node.ts'

/** How a child ended. */
export type Outcome<T> =
  | { readonly status: 'done'; readonly value: T }
  | { readonly status: 'failed'; readonly error: Error }
  | { readonly status: 'cancelled'; readonly reason: Cancelled }

declare const VALUE: unique symbol

/**
 * Something that was spawned in a group. It has no value while the group is at work: return it
 * from the group's body to have the value of its type from the group, or ask for its outcome after
 * the group was left.
 */
export type Child<T> = {
  readonly name: string
  /**
   * How it ended, also in a group that failed.
   * @throws InvariantError as long as the group has not been left
   */
  readonly outcome: Outcome<T>
  /** In types alone: what the group makes of it. */
  readonly [VALUE]?: T
}

export type Group<S> = {
  /**
   * Starts `body` in a scope of its own. When it fails, the others are cancelled
   * (`sibling_failed`), and the group throws once all have ended. In a group that is cancelled
   * already it does not run.
   * @throws InvariantError when the group has been left
   */
  spawn<T>(body: (scope: S) => T | Promise<T>, options?: { name?: string }): Child<T>
}

/** A group's result: each child that its body returns, alone or in a list or record, as its value. */
export type Left<R> =
  R extends Child<infer T>
    ? T
    : R extends readonly unknown[]
      ? { -readonly [K in keyof R]: R[K] extends Child<infer T> ? T : R[K] }
      : R extends { readonly [key: string]: unknown }
        ? { [K in keyof R]: R[K] extends Child<infer T> ? T : R[K] }
        : R

/**
 * Runs `body`, and everything that it spawns, and returns when all have settled.
 * @throws the failure, or an AggregateError of all; the reason, if it was cancelled from outside
 */
export function runGroup<S, R>(
  parent: ScopeNode,
  extend: Extend<S>,
  body: (group: Group<S>, scope: S) => R | Promise<R>,
): Promise<Left<R>> {
  const node = openNode(parent, { name: 'group', settings: parent.settings })
  const failures: Error[] = []
  const running = new Set<Promise<void>>()

  /** The first failure stops the others; those of the others are kept as well. */
  function start<T>(name: string, run: (scope: S) => T | Promise<T>): Slot<T> {
    const slot: Slot<T> = { outcome: null }
    const inner = openNode(node, { name, settings: node.settings })
    function onEnd(ended: Ended<T>) {
      slot.outcome = outcomeOf(ended)
      if (ended.kind !== 'failed') return ended
      failures.push(...ended.failures)
      node.cancel(new Cancelled('sibling_failed', { cause: together(ended.failures) }))
      return ended
    }
    const settled = enter(inner, () => run(extend(inner)), onEnd).then(
      () => undefined,
      () => undefined,
    )
    running.add(settled)
    settled.then(
      () => running.delete(settled),
      () => undefined,
    )
    return slot
  }

  const group: Group<S> = {
    spawn(run, { name = `child ${node.inner.size}` } = {}) {
      assertOpen(node, 'spawn')
      const slot = start(name, run)
      const child = {
        name,
        get outcome() {
          invariant(node.hasLeft && slot.outcome, `${name} is read before its group was left`)
          return slot.outcome
        },
      }
      SLOTS.set(child, slot)
      return child
    },
  }

  async function work(): Promise<Left<R>> {
    const own = start('body', (scope) => body(group, scope))
    while (running.size > 0) await Promise.all(running)
    node.signal.throwIfAborted()
    invariant(own.outcome?.status === 'done', 'a group without a failure has a result')
    return leftOf(own.outcome.value)
  }
  return enter(node, work, (ended) => {
    if (failures.length === 0) return ended
    return {
      kind: 'failed',
      failures: [...failures, ...(ended.kind === 'failed' ? ended.failures : [])],
    }
  })
}

/** A value that came after the cancel is there all the same; the group ends by its reason. */
function outcomeOf<T>(ended: Ended<T>): Outcome<T> {
  switch (ended.kind) {
    case 'done':
      return { status: 'done', value: ended.value }
    case 'failed':
      return { status: 'failed', error: together(ended.failures) }
    case 'cancelled':
      return { status: 'cancelled', reason: ended.reason }
  }
}

type Slot<T> = { outcome: Outcome<T> | null }

const SLOTS = new WeakMap<object, Slot<unknown>>()

function leftOf<R>(result: R): Left<R>
function leftOf(result: unknown): unknown {
  if (Array.isArray(result)) return result.map(valueOf)
  if (typeof result !== 'object' || result === null || SLOTS.has(result)) return valueOf(result)
  if (Object.getPrototypeOf(result) !== Object.prototype) return result
  return Object.fromEntries(Object.entries(result).map(([key, one]) => [key, valueOf(one)]))
}

/** A child of another group is none of ours, and may not have ended. */
function valueOf(one: unknown): unknown {
  const slot = typeof one === 'object' && one !== null ? SLOTS.get(one) : undefined
  if (!slot) return one
  invariant(slot.outcome?.status === 'done', 'a child that is returned belongs to this group')
  return slot.outcome.value
}
