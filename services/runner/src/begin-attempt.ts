import { backoffMs, HoldfastError, wait } from '@holdfast/std'
import { type AttemptInput, type Claimed, readAttemptInput } from '@holdfast/store'
import { type Attempt, openAttempt } from './attempt.ts'
import { childLog, type ExecuteDeps } from './execute-deps.ts'
import type { Instant } from './instant.ts'
import type { HeldLease } from './lease-keeper.ts'

/** Renews from the first moment; reads what the attempt begins with. `null`: lost before it began. */
export async function beginAttempt(
  deps: ExecuteDeps,
  claimed: Claimed,
  claimedAt: Instant,
  purpose: 'execute' | 'end',
): Promise<Attempt | 'unreadable' | null> {
  // Until the attempt exists there is nothing to tell but that it must not begin.
  let early: 'cancel' | 'lost' | null = null
  let listener = {
    cancel: () => {
      early ??= 'cancel'
    },
    lost: () => {
      early = 'lost'
    },
  }
  const held = deps.keeper.hold(claimed.lease, claimedAt, {
    cancel: () => listener.cancel(),
    lost: () => listener.lost(),
  })
  const withBytes = purpose === 'execute'
  const input = await readInput(deps, claimed, held, { withBytes, stopped: () => early !== null })
  if (input === null || input === 'unreadable') {
    held.release()
    return input
  }
  const attempt = openAttempt({
    ...deps,
    claimed,
    input,
    held: (on) => {
      listener = on
      return held
    },
  })
  if (early === 'lost') listener.lost()
  if (early === 'cancel' || input.cancelRequested) listener.cancel()
  return attempt
}

/** Also a run that is only to be ended gets so long. */
const READ_MS_MIN = 10_000

async function readInput(
  deps: ExecuteDeps,
  claimed: Claimed,
  held: HeldLease,
  { withBytes, stopped }: { withBytes: boolean; stopped: () => boolean },
): Promise<AttemptInput | 'unreadable' | null> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await readAttemptInput(deps.store, claimed.lease, { withBytes })
    } catch (error) {
      childLog(deps, claimed).warn({ err: error }, 'an attempt could not read its input')
      const temporary = error instanceof HoldfastError && error.kind === 'unavailable'
      const waitedMs = performance.now() - claimed.sentAtMs
      const late = waitedMs >= Math.max(READ_MS_MIN, claimed.deadlineLeftMs)
      if (!temporary) return 'unreadable'
      // The lease is let go; whoever takes over next ends the run if its deadline or its attempts are used up.
      if (late || stopped() || held.leftMs() <= 0) return null
      await wait(backoffMs(tries, { baseMs: 50, capMs: 1000 }))
    }
  }
}
