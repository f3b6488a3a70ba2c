import { asError, unlessAborted, wait } from '@holdfast/std'
import type { StepCall, StepPolicy } from './agents/step.ts'
import type { Attempt } from './attempt.ts'
import type { FencedWriteDeps } from './fenced-write.ts'
import type { StepRecords } from './step-records.ts'
import { reasonOf } from './step-result.ts'

/** How the effect of a step that is done is undone. */
export type Undo = {
  readonly key: string
  readonly policy: StepPolicy
  run(call: StepCall): Promise<void> | void
}

/** One after the other, and all together. */
const UNDO_MS_MAX = 10_000
const ALL_MS_MAX = 30_000

/**
 * Undoes what a failed or stopped run has done, the last first, each as a step of its own with its own key. It is not cut
 * by the run's abort, only by its time limit and the end of the lease; one that fails does not keep the others from
 * being tried. What was undone before is not undone again, and what may have been is left to people.
 */
export async function undoAll(
  deps: FencedWriteDeps,
  attempt: Attempt,
  records: StepRecords,
  undo: readonly Undo[],
): Promise<void> {
  const untilMs = performance.now() + ALL_MS_MAX
  for (const { key, policy, run } of undo.toReversed()) {
    const leftMs = Math.min(UNDO_MS_MAX, untilMs - performance.now())
    if (leftMs <= 0 || attempt.lost.aborted) {
      deps.log.error({ step: key }, 'a step was not undone in time')
      continue
    }
    try {
      await undoOne(attempt, records, { key, policy, run }, leftMs)
    } catch (error) {
      deps.log.error({ err: error, step: key }, 'a step could not be undone')
    }
  }
}

async function undoOne(attempt: Attempt, records: StepRecords, undo: Undo, leftMs: number) {
  const key = `${undo.key}:undo`
  const step = { kind: 'compensation', policy: undo.policy, parent: undo.key }
  const begun = await records.begin(key, step, undo.policy === 'retry')
  if (begun.kind === 'recorded') return
  if (begun.kind === 'in_doubt') throw new Error('an earlier attempt may have undone it')
  attempt.held.assertHeld()
  const bound = new AbortController()
  const onLost = () => bound.abort(attempt.lost.reason)
  attempt.lost.addEventListener('abort', onLost, { once: true })
  const ended = new AbortController()
  wait(leftMs, ended.signal).then(
    () => bound.abort(new Error('the time to undo it is up')),
    () => undefined,
  )
  const call = { idempotencyKey: begun.idempotencyKey, signal: bound.signal }
  try {
    await unlessAborted(Promise.resolve(undo.run(call)), bound.signal)
  } catch (error) {
    if (!bound.signal.aborted)
      await records.end({ key, outcome: 'failed', result: reasonOf(error) })
    throw asError(error)
  } finally {
    ended.abort()
    attempt.lost.removeEventListener('abort', onLost)
  }
  await records.end({ key, outcome: 'done', result: null, compensates: undo.key })
}
