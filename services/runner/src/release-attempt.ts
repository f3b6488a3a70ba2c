import { closingEvents, foldEvents } from '@holdfast/protocol'
import { backoffMs, wait } from '@holdfast/std'
import { recordStaleWrite, releaseRun } from '@holdfast/store'
import type { Attempt } from './attempt.ts'
import type { ExecuteDeps } from './execute-deps.ts'
import { finishAttempt, sectionMs } from './finish.ts'
import type { Outcome } from './outcome.ts'

/** Gives the run back, until the lease's end; a cancel that came first wins and ends it. */
export async function releaseAttempt(
  deps: ExecuteDeps,
  attempt: Attempt,
  { command, delayMs }: Extract<Outcome, { kind: 'release' }>,
): Promise<void> {
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
          deps.log.info({ command, delayMs }, 'the run was given back')
          if (command === 'hand_back') deps.metrics.handbacks.inc()
          deps.wakeups.publish('events', [lease.runId])
          deps.wakeups.publish('queue', [lease.runId])
          return
        case 'cancel_pending':
          return await finishAttempt(deps, attempt, { kind: 'cancel' })
        case 'sequence_mismatch':
          deps.log.error({ released }, 'the run could not be given back')
          return
        case 'fenced':
          // After a lost reply this is our own release; the first time somebody else has the run.
          if (tries > 0) return
          deps.metrics.staleWrites.inc({ operation: command })
          return await recordStaleWrite(deps.store, lease, command)
      }
    } catch (error) {
      deps.log.warn({ err: error, command, tries }, 'the run could not be given back yet')
      if (attempt.held.leftMs() <= 0 || performance.now() > untilMs) return
      await wait(backoffMs(tries, { baseMs: 50, capMs: 1000 }))
    }
  }
}
