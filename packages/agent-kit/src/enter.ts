import { wait } from '@holdfast/std'
import { Cancelled, cancelledBy, isCancellation } from './cancelled.ts'
import { failuresOf, together } from './failures.ts'
import type { Report } from './report.ts'
import { disposeAll } from './resources.ts'
import { assertOpen, type ScopeNode } from './scope-node.ts'

/** How long a body may go on after a cancel before its normal end counts as swallowing it. */
const PROMPT_MS = 20

/** How a scope ended. `late`: normally, although it had been cancelled before. */
export type Ended<T> =
  | { readonly kind: 'done'; readonly value: T; readonly late: boolean }
  | { readonly kind: 'failed'; readonly failures: readonly Error[] }
  | { readonly kind: 'cancelled'; readonly reason: Cancelled }

/**
 * Runs `body` in the scope `node`, and settles when nothing of it is left: the body has settled,
 * all scopes in it were left, its resources were disposed of. Code that does not stop after a
 * cancel, and a disposal that hangs, are waited for within a bound, reported and left behind.
 * @param onEnd sees how it ended, and may say it differently
 */
export function enter<T>(
  node: ScopeNode,
  body: () => T | Promise<T>,
  onEnd: (ended: Ended<T>) => Ended<T> = (ended) => ended,
): Promise<T> {
  const alive = live(node, body)
  const result = alive.then((ended) => resultOf(onEnd(ended), node))
  // What begins in a scope that is cancelled does not run, so nobody has to wait for it.
  if (!node.signal.aborted) node.parent?.hold(node, alive, result)
  return result
}

async function live<T>(node: ScopeNode, body: () => T | Promise<T>): Promise<Ended<T>> {
  const { parent, settings, path } = node
  if (parent) assertOpen(parent, 'what begins')
  if (parent?.signal.aborted && !node.isShield) node.cancel(cancelledBy(parent.signal))
  // Whoever begins something has its handle before it runs.
  await Promise.resolve()
  try {
    const ended = await bodyEnd(node, body)
    const failures = ended.kind === 'failed' ? [...ended.failures] : []
    failures.push(...(await leaveInner(node)))
    const onStuck = () =>
      settings.report({ kind: 'dispose_stuck', scope: path, ms: settings.disposeMs })
    failures.push(...(await disposeAll(node.disposers, settings.disposeMs, onStuck)))
    return failures.length > 0 ? { kind: 'failed', failures } : ended
  } finally {
    node.hasLeft = true
  }
}

/** What the end of a scope means to whoever waits for it. */
function resultOf<T>(ended: Ended<T>, { signal }: ScopeNode): T {
  switch (ended.kind) {
    case 'done':
      if (ended.late) throw cancelledBy(signal)
      return ended.value
    case 'failed':
      throw together(ended.failures)
    case 'cancelled':
      throw ended.reason
  }
}

async function bodyEnd<T>(node: ScopeNode, body: () => T | Promise<T>): Promise<Ended<T>> {
  if (node.signal.aborted) return { kind: 'cancelled', reason: cancelledBy(node.signal) }
  const settled = new AbortController()
  const stuck = node.cancelled
    .then(() => untilStuck(node, settled.signal))
    .then((): Ended<T> => {
      report(node, 'stuck')
      return { kind: 'cancelled', reason: cancelledBy(node.signal) }
    })
  stuck.catch(() => undefined)
  try {
    return await Promise.race([run(node, body), stuck])
  } finally {
    settled.abort()
  }
}

async function run<T>(node: ScopeNode, body: () => T | Promise<T>): Promise<Ended<T>> {
  const { signal } = node
  try {
    const value = await body()
    const late = signal.aborted
    if (late && performance.now() - node.quietSinceMs > PROMPT_MS) report(node, 'swallowed')
    return { kind: 'done', value, late }
  } catch (error) {
    if (isCancellation(error, signal)) return { kind: 'cancelled', reason: cancelledBy(signal) }
    // Cancellations among several are no failures: who cancelled knows of it by the signal.
    const failures = failuresOf(error).filter((one) => !isCancellation(one, signal))
    return { kind: 'failed', failures }
  }
}

/** Resolves when the body had its time to stop, with nothing in it that was still stopping. */
async function untilStuck(node: ScopeNode, settled: AbortSignal): Promise<void> {
  const { stopMs } = node.settings
  for (let leftMs = stopMs; leftMs > 0; ) {
    await wait(leftMs, settled)
    leftMs = node.inner.size > 0 ? stopMs : node.quietSinceMs + stopMs - performance.now()
  }
}

/** What the body began and did not wait for: told to stop, shields apart, and waited for. */
async function leaveInner(node: ScopeNode): Promise<Error[]> {
  const failures: Error[] = []
  while (node.inner.size > 0) {
    for (const inner of node.inner.keys()) {
      if (inner.isShield || inner.signal.aborted) continue
      report(inner, 'not_awaited')
      inner.cancel(new Cancelled('cancel'))
    }
    const ends = [...node.inner].map(async ([inner, result]) => {
      const error: unknown = await result.then(
        () => undefined,
        (thrown: unknown) => thrown,
      )
      const counts = error !== undefined && !isCancellation(error, inner.signal)
      return counts ? failuresOf(error) : []
    })
    failures.push(...(await Promise.all(ends)).flat())
  }
  return failures
}

function report(node: ScopeNode, kind: Report['kind']): void {
  const ms = node.signal.aborted ? performance.now() - node.quietSinceMs : 0
  node.settings.report({ kind, scope: node.path, ms })
}
