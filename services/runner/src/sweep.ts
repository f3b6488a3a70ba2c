import { asError, type Loop, loop } from '@holdfast/std'
import {
  type Claimed,
  claimForEnding,
  type EndingCause,
  endOverdueQueued,
  type Store,
  takeOver,
  unparkMissedHeads,
  type Wakeups,
} from '@holdfast/store'
import { type Instant, now } from './instant.ts'
import type { RunnerMetrics } from './metrics.ts'

const SWEEP_EVERY_MS = 1000
const ROWS_A_SWEEP = 50
/** A head that was missed is a bug being repaired; looking for it costs every parked turn. */
const HEADS_EVERY_SWEEPS = 10

export type SweepOptions = {
  store: Store
  wakeups: Pick<Wakeups, 'publish'>
  metrics: RunnerMetrics
  owner: string
  agents: readonly string[]
  leaseMs: number
  freeSlots: () => number
  start: (claimed: Claimed, claimedAt: Instant) => void
  end: (claimed: Claimed & { cause: EndingCause }, claimedAt: Instant) => void
  onError: (error: Error) => void
}

/**
 * Finds what nobody covers: runs whose lease has passed are taken over, or claimed to be ended; queued ones
 * that may not wait any longer are ended. It runs in every runner, jittered and bounded.
 */
export function sweep(options: SweepOptions): Loop {
  const { store, wakeups, metrics, owner, agents, leaseMs } = options
  let sweeps = 0

  async function takeOverExpired() {
    const limit = Math.min(options.freeSlots(), ROWS_A_SWEEP)
    if (limit <= 0) return
    const claimedAt = now()
    const taken = await takeOver(store, {
      owner,
      agents,
      leaseMs,
      limit,
      onFailed: options.onError,
    })
    for (const run of taken) {
      metrics.leasesExpired.inc()
      metrics.takeovers.inc({ reason: 'lease' })
      options.start(run, claimedAt)
    }
  }

  async function endExpired() {
    const claimedAt = now()
    const request = { owner, leaseMs, limit: ROWS_A_SWEEP, onFailed: options.onError }
    for (const run of await claimForEnding(store, request)) {
      metrics.leasesExpired.inc()
      options.end(run, claimedAt)
    }
  }

  async function endQueued() {
    const { ended, due, failed } = await endOverdueQueued(store, ROWS_A_SWEEP)
    failed.forEach(options.onError)
    wakeups.publish('events', ended)
    wakeups.publish('queue', due)
  }

  async function repairHeads() {
    sweeps += 1
    if (sweeps % HEADS_EVERY_SWEEPS === 0) wakeups.publish('queue', await unparkMissedHeads(store))
  }

  return loop({
    name: 'sweep',
    everyMs: SWEEP_EVERY_MS,
    onError: options.onError,
    async round(signal) {
      for (const look of [takeOverExpired, endExpired, endQueued, repairHeads]) {
        if (signal.aborted) return
        // What one of them cannot do must not keep the next from its own.
        await look().catch((error: unknown) => options.onError(asError(error)))
      }
    },
  })
}
