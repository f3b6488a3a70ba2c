import type { Loop } from '@holdfast/std'
import type { Logger } from 'pino'
import { presenceWatch } from './presence-watch.ts'
import { type SweepOptions, sweep } from './sweep.ts'

/**
 * What finds the runs of others that nobody covers any more: the sweep, and the watch for owners that are gone, which
 * hurries it.
 */
export function recovery(
  options: Omit<SweepOptions, 'onError'> & {
    log: Logger
    onError: (what: string) => (error: Error) => void
  },
): Loop[] {
  const { store, owner: bootId, leaseMs, metrics, log, onError } = options
  const sweeping = sweep({ ...options, onError: onError('a sweep') })
  const watching = presenceWatch({
    store,
    bootId,
    leaseMs,
    onGone(owner, leases) {
      log.warn({ owner, leases }, 'a runner is gone; its runs are taken over')
      metrics.ownersGone.inc()
      sweeping.wake()
    },
    onError: onError('looking for runners'),
  })
  return [sweeping, watching]
}
