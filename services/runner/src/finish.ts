import { type EndCause, endingOf, type RunEnding } from '@holdfast/protocol'
import { asError, backoffMs, HoldfastError, wait } from '@holdfast/std'
import {
  type Finished,
  finishRun,
  newId,
  readOwnership,
  type Store,
  type Wakeups,
} from '@holdfast/store'
import type { Logger } from 'pino'
import type { Attempt } from './attempt.ts'
import type { RunnerMetrics } from './metrics.ts'
import type { Probes } from './probes.ts'
import type { StaleLedger } from './stale-ledger.ts'

type Deps = {
  store: Store
  wakeups: Pick<Wakeups, 'publish'>
  metrics: RunnerMetrics
  stale: Pick<StaleLedger, 'refused'>
  log: Logger
  probes: Probes
  onEnded: () => void
}

/** What there is to say about it needs only what was claimed. */
type Ended = Pick<Attempt, 'claimed'>

/**
 * The protected section that ends a run. It is not cut by the run's own abort, only by the end of the lease: until
 * then it is tried again; a lost reply is decided by a re-read and never repeated blindly. If it cannot commit
 * nothing pretends: the run stays as it is, recoverable, and the failure is counted.
 */
export async function finishAttempt(deps: Deps, attempt: Attempt, cause: EndCause): Promise<void> {
  const { lease } = attempt.claimed
  const { log } = deps
  await deps.probes.beforeFinish?.(lease)
  let plain = false
  // The keeper goes on renewing, so the section needs an end of its own.
  const untilMs = performance.now() + sectionMs(attempt)
  for (let tries = 0; ; tries += 1) {
    const sequence = attempt.log.sequence
    try {
      const decide = async (found: { cancelRequested: boolean; followed: boolean }) => {
        await deps.probes.insideFinish?.(lease)
        return decideEnding(deps, attempt, cause, { ...found, plain })
      }
      const artifacts = plain ? [] : attempt.artifacts.written
      const finished = await finishRun(deps.store, lease, sequence, decide, artifacts)
      return await settle(deps, attempt, finished, tries)
    } catch (error) {
      if (await landed(deps, attempt)) return await settleLanded(deps, attempt)
      const temporary = error instanceof HoldfastError && error.kind === 'unavailable'
      if (!temporary && plain) return leaveForRecovery(deps, attempt, asError(error))
      // Data that cannot be stored must not keep a run from ending: then it ends without its messages.
      plain = !temporary
      log.warn({ err: error, tries, plain }, 'the terminal write failed')
      if (attempt.held.leftMs() <= 0 || performance.now() > untilMs)
        return leaveForRecovery(deps, attempt, asError(error))
      await wait(backoffMs(tries, { baseMs: 50, capMs: 1000 }))
    }
  }
}

/** The lease that is left at its beginning, but never less than some tries take. */
export function sectionMs(attempt: Attempt): number {
  return Math.max(5000, attempt.held.leftMs())
}

function decideEnding(
  deps: Deps,
  attempt: Attempt,
  cause: EndCause,
  found: { cancelRequested: boolean; followed: boolean; plain: boolean },
): RunEnding {
  const { input } = attempt
  const succeeded = cause.kind === 'success' || cause.kind === 'interrupt'
  const effective: EndCause =
    found.cancelRequested && cause.kind !== 'cancel'
      ? { kind: 'cancel', complete: succeeded, ...(cause.usage ? { usage: cause.usage } : {}) }
      : cause
  const ending = endingOf({
    fold: attempt.fold,
    cause: found.plain ? { kind: 'error', code: 'internal' } : effective,
    threadId: input.threadId,
    runId: input.wireRunId,
    storedIds: new Set(input.history.map(({ message }) => message.id)),
    frontEndTools: new Set(input.tools.map((tool) => tool.name)),
    openCalls: input.openCalls,
    followed: found.followed,
    mintId: () => newId(deps.store),
  })
  return found.plain ? { ...ending, messages: [], state: undefined, result: undefined } : ending
}

/** Tells of what the transaction did. */
export async function settle(deps: Deps, attempt: Ended, finished: Finished, tries: number) {
  const { lease } = attempt.claimed
  switch (finished.kind) {
    case 'finished':
      await deps.probes.afterFinishCommit?.(lease)
      deps.metrics.runsEnded.inc({ state: finished.state, outcome: finished.state })
      deps.wakeups.publish('events', [lease.runId])
      if (finished.nextRunId) deps.wakeups.publish('queue', [finished.nextRunId])
      deps.onEnded()
      deps.log.info({ state: finished.state, sequence: finished.sequence }, 'run ended')
      return
    case 'sequence_mismatch':
      leaveForRecovery(deps, attempt, new Error('the log is longer than this attempt wrote'))
      return
    case 'fenced':
      if (tries > 0 && (await landed(deps, attempt))) {
        await settleLanded(deps, attempt)
        return
      }
      deps.stale.refused(lease, 'finish')
      deps.log.info('the run is not ours any more: nothing was finished')
  }
}

/** Whether a finish whose reply was lost has committed: then it is this attempt that ended the run. */
async function landed(deps: Deps, attempt: Ended): Promise<boolean> {
  try {
    const [now] = await readOwnership(deps.store, [attempt.claimed.lease])
    return ['succeeded', 'failed', 'stopped'].includes(now?.outcome ?? '')
  } catch {
    return false
  }
}

async function settleLanded(deps: Deps, attempt: Ended) {
  deps.wakeups.publish('events', [attempt.claimed.lease.runId])
  // Which turn became due is not known any more; the claim loops look for themselves.
  deps.wakeups.publish('queue', [attempt.claimed.lease.runId])
  deps.onEnded()
  deps.log.info('run ended; the reply had been lost')
}

/** Counted and told; the lease passes, and the run is somebody else's. Nothing pretends that it ended. */
export function leaveForRecovery(deps: Deps, attempt: Ended, error: Error) {
  deps.metrics.terminalWriteFailures.inc()
  deps.log.error(
    { err: error, runId: attempt.claimed.lease.runId },
    'the run could not be ended and is left for recovery',
  )
}
