import { type Loop, loop } from '@holdfast/std'
import { type Claimed, claimQueued, type Store } from '@holdfast/store'
import { type Instant, now } from './instant.ts'

const CLAIM_EVERY_MS = 1000

/**
 * Claims as many due runs as there are free slots, at once when woken, else about every second: a wake-up is
 * only a hint.
 */
export function claimLoop(options: {
  store: Store
  owner: string
  agents: readonly string[]
  leaseMs: number
  freeSlots: () => number
  start: (claimed: Claimed, claimedAt: Instant) => void
  onError: (error: Error) => void
}): Loop {
  return loop({
    name: 'claim loop',
    everyMs: CLAIM_EVERY_MS,
    onError: options.onError,
    async round(signal) {
      for (;;) {
        const limit = options.freeSlots()
        if (limit <= 0 || signal.aborted) return
        const claimedAt = now()
        const claimed = await claimQueued(options.store, {
          ...options,
          limit,
          onFailed: options.onError,
        })
        for (const run of claimed) options.start(run, claimedAt)
        if (claimed.length < limit) return
      }
    },
  })
}
