import { asError } from '@holdfast/std'
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
] as const
export type FencedOperation = (typeof FENCED_OPERATIONS)[number]

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

  async function record(lease: Lease, operation: FencedOperation) {
    try {
      if (!(await recordStaleWrite(options.store, lease, operation))) return
    } catch (error) {
      // Without its row it is at least counted.
      options.onError(asError(error))
    }
    options.metrics.staleWrites.inc({ operation })
  }

  return {
    refused(lease, operation) {
      const write = record(lease, operation).finally(() => writing.delete(write))
      writing.add(write)
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(writing)
    },
  }
}
