import { asError, backoffMs, HoldfastError, wait, within } from '@holdfast/std'
import { type Lease, recordStaleWrite, type Store } from '@holdfast/store'
import type { RunnerMetrics } from './metrics.ts'

/** Every kind of write that the fence can refuse. */
export const FENCED_OPERATIONS = [
  'append',
  'finish',
  'hand_back',
  'retry',
  'fold',
  'renew',
  'step_intent',
  'step_outcome',
  'checkpoint',
  'span',
] as const
export type FencedOperation = (typeof FENCED_OPERATIONS)[number]

/** A database that is away is asked again for about two minutes; then the write is counted without its row. */
const TRIES_MAX = 30
/** What a runner that ends waits for the rows that are not written yet. */
const STOP_MS = 5000

/** Where writes that the fence refused are written down and counted. Disposing waits for what is being written. */
export type StaleLedger = AsyncDisposable & {
  /** Returns at once; never throws. A write of an attempt that had ended its run by itself is not a stale one. */
  refused(lease: Lease, operation: FencedOperation): void
}

export function openStaleLedger(options: {
  store: Store
  metrics: Pick<RunnerMetrics, 'staleWrites'>
  onError: (error: Error) => void
}): StaleLedger {
  const writing = new Set<Promise<void>>()
  const stopping = new AbortController()

  async function record(lease: Lease, operation: FencedOperation) {
    if (await written(lease, operation)) options.metrics.staleWrites.inc({ operation })
  }

  /** False only when it was no stale write. */
  async function written(lease: Lease, operation: FencedOperation): Promise<boolean> {
    const refusedAt = performance.now()
    for (let tries = 1; ; tries += 1) {
      try {
        const agoMs = performance.now() - refusedAt
        return await recordStaleWrite(options.store, lease, operation, agoMs)
      } catch (error) {
        options.onError(asError(error))
        // What refuses the write is often what makes the database hard to reach.
        const temporary = error instanceof HoldfastError && error.kind === 'unavailable'
        if (!temporary || tries >= TRIES_MAX || stopping.signal.aborted) return true
        const pause = wait(backoffMs(tries, { baseMs: 100, capMs: 5000 }), stopping.signal)
        await pause.catch(() => undefined)
      }
    }
  }

  return {
    refused(lease, operation) {
      const write = record(lease, operation).finally(() => writing.delete(write))
      writing.add(write)
    },
    async [Symbol.asyncDispose]() {
      await within(STOP_MS, Promise.all(writing))
      stopping.abort()
      await Promise.all(writing)
    },
  }
}
