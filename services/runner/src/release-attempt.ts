import { closingEvents, foldEvents } from '@holdfast/protocol'
import { backoffMs, wait } from '@holdfast/std'
import { readOwnership, releaseRun } from '@holdfast/store'
import type { Attempt } from './attempt.ts'
import type { ExecuteDeps } from './execute-deps.ts'
import { finishAttempt, sectionMs } from './finish.ts'
import type { Outcome } from './outcome.ts'

type Release = Extract<Outcome, { kind: 'release' }>

/** Gives the run back, until the lease's end; a cancel that came first wins and ends it. */
export async function releaseAttempt(
  deps: ExecuteDeps,
  attempt: Attempt,
  outcome: Release,
): Promise<void> {
  const { command, delayMs } = outcome
  const { lease } = attempt.claimed
  await deps.probes.beforeRelease?.(lease)
  const closers = closingEvents(attempt.fold, { answerTools: false, mintId: () => '' })
  const fold = foldEvents(attempt.fold, closers)
  const untilMs = performance.now() + sectionMs(attempt)
  for (let tries = 0; ; tries += 1) {
    try {
      const released = await releaseRun(deps.store, lease, attempt.log.sequence, {
        command,
        delayMs,
        closers,
        fold,
      })
      switch (released.kind) {
        case 'released':
          return settle(deps, attempt, outcome)
        case 'cancel_pending':
          return await finishAttempt(deps, attempt, { kind: 'cancel' })
        case 'sequence_mismatch':
          deps.log.error({ released }, 'the run could not be given back')
          return
        case 'fenced':
          // After a lost reply this may be our own release.
          if (tries > 0 && (await landed(deps, attempt))) return settle(deps, attempt, outcome)
          deps.stale.refused(lease, command)
          return
      }
    } catch (error) {
      deps.log.warn({ err: error, command, tries }, 'the run could not be given back yet')
      if (attempt.held.leftMs() <= 0 || performance.now() > untilMs) {
        deps.log.error({ err: error, command }, 'the run was not given back; its lease will pass')
        return
      }
      await wait(backoffMs(tries, { baseMs: 50, capMs: 1000 }))
    }
  }
}

function settle(deps: ExecuteDeps, attempt: Attempt, { command, delayMs }: Release) {
  const { runId } = attempt.claimed.lease
  deps.log.info({ command, delayMs }, 'the run was given back')
  if (command === 'hand_back') deps.metrics.handbacks.inc()
  deps.wakeups.publish('events', [runId])
  deps.wakeups.publish('queue', [runId])
}

/** Whether it was this attempt that gave the run back, whoever has it by now. */
async function landed(deps: ExecuteDeps, attempt: Attempt): Promise<boolean> {
  const [now] = await readOwnership(deps.store, [attempt.claimed.lease])
  return ['handed_back', 'retried'].includes(now?.outcome ?? '')
}
