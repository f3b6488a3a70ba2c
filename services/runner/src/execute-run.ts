import type { EndCause } from '@holdfast/protocol'
import { asError, within } from '@holdfast/std'
import type { Claimed, EndingCause } from '@holdfast/store'
import type { Attempt } from './attempt.ts'
import { beginAttempt } from './begin-attempt.ts'
import { endUnread } from './end-unread.ts'
import { childLog, type ExecuteDeps } from './execute-deps.ts'
import { finishAttempt, leaveForRecovery, sectionMs } from './finish.ts'
import { nameLostCalls } from './in-doubt.ts'
import type { Instant } from './instant.ts'
import { decideOutcome, type Outcome } from './outcome.ts'
import { releaseAttempt } from './release-attempt.ts'

/**
 * One attempt, from claim to end. Everything that it started has ended when it returns, and its lease is not
 * renewed any more.
 */
export async function executeRun(
  deps: ExecuteDeps,
  claimed: Claimed,
  claimedAt: Instant,
  register: (attempt: Attempt) => void,
): Promise<void> {
  await deps.probes.afterClaim?.(claimed.lease)
  const attempt = await beginAttempt(deps, claimed, claimedAt, 'execute')
  // What this version cannot read, another one may: the lease passes, and the attempts are counted.
  if (attempt === null || attempt === 'unreadable') return
  const log = childLog(deps, claimed)
  try {
    register(attempt)
    const outcome = await decideOutcome(deps, attempt, log)
    await record({ ...deps, log }, attempt, outcome)
  } finally {
    attempt.close()
  }
}

/** Ends a run that was claimed for ending: the same fold, the same finish, no agent. */
export async function endRun(
  deps: ExecuteDeps,
  claimed: Claimed & { cause: EndingCause },
  claimedAt: Instant,
): Promise<void> {
  const attempt = await beginAttempt(deps, claimed, claimedAt, 'end')
  if (attempt === 'unreadable')
    return await endUnread({ ...deps, log: childLog(deps, claimed) }, claimed)
  if (attempt === null) return
  try {
    const cause: EndCause =
      claimed.cause === 'cancel' ? { kind: 'cancel' } : { kind: 'error', code: claimed.cause }
    const own = { ...deps, log: childLog(deps, claimed) }
    await nameLostCalls(own, attempt, deps.agents.get(claimed.agent))
    await finishAttempt(own, attempt, cause)
  } finally {
    attempt.close()
  }
}

/** Writes down how the attempt ended: what was delivered first, then the end or the release. */
async function record(deps: ExecuteDeps, attempt: Attempt, outcome: Outcome): Promise<void> {
  const refused = await flushed(attempt)
  // However the agent ended: events that were dropped with the lease must not be missing in a success.
  if (outcome.kind === 'lost' || hasLost(attempt)) {
    deps.metrics.leasesLost.inc()
    deps.log.warn({ err: refused ?? undefined }, 'the lease was lost; the attempt stopped')
    return
  }
  if (refused === 'undecided') {
    leaveForRecovery(deps, attempt, new Error('what was said could not be made durable'))
  } else if (refused) {
    deps.log.error({ err: refused }, 'events were refused by the database')
    await finishAttempt(deps, attempt, { kind: 'error', code: 'internal' })
  } else if (outcome.kind === 'release') await releaseAttempt(deps, attempt, outcome)
  else await finishAttempt(deps, attempt, outcome.cause)
}

/**
 * What was delivered becomes durable first: null, or why it was refused. A database that takes no events, though it
 * renews the lease, must not keep the attempt for ever.
 */
async function flushed(attempt: Attempt): Promise<Error | 'undecided' | null> {
  const settled = attempt.log.settled().then(() => null, asError)
  const ended = await within(sectionMs(attempt), settled)
  return ended === undefined ? 'undecided' : ended
}

function hasLost({ lost, held }: Attempt): boolean {
  return lost.aborted || held.leftMs() <= 0
}
