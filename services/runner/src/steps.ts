import type { EndCause } from '@holdfast/protocol'
import { unlessAborted, within } from '@holdfast/std'
import { AgentFailure, type AgentRun } from './agents/agent.ts'
import type { StepAnswer, StepCall, StepOptions } from './agents/step.ts'
import type { Attempt } from './attempt.ts'
import { type Undo, undoAll } from './compensation.ts'
import type { FencedWriteDeps } from './fenced-write.ts'
import type { Outcome } from './outcome.ts'
import { openStepRecords, type StepRecords } from './step-records.ts'
import { parsed, reasonOf, recorded, serialised } from './step-result.ts'

/** The effects of an attempt, which are recorded before and after. */
export type Steps = {
  readonly step: AgentRun['step']
  /**
   * The agent has ended. Steps that it did not wait for end first: on success by themselves, else cut. What is in
   * doubt becomes the run's ending, and a failed or stopped run is undone as far as its steps say how.
   */
  conclude(outcome: Outcome): Promise<Outcome>
}

/** A step's function that does not stop when told is waited for no longer than this; what it still writes is refused. */
const STOP_MS_MAX = 5000

export function openSteps(deps: FencedWriteDeps, attempt: Attempt): Steps {
  const scope = new AbortController()
  const running = new Map<string, Promise<unknown>>()
  const onAbort = () => scope.abort(attempt.signal.reason)
  if (attempt.signal.aborted) onAbort()
  else attempt.signal.addEventListener('abort', onAbort, { once: true })
  const records = openStepRecords(deps, attempt)
  const work: Work = {
    attempt,
    records,
    signal: scope.signal,
    undo: [],
    doubts: new Set(),
    stuck: false,
  }
  for (const { key, policy } of attempt.input.stepsInDoubt) {
    if (policy !== 'retry') work.doubts.add(key)
  }

  async function settle(cut: boolean) {
    while (!cut && running.size > 0 && !scope.signal.aborted) {
      const rest = Promise.allSettled(running.values())
      await unlessAborted(rest, scope.signal).catch(() => undefined)
    }
    scope.abort(new Error('the agent has ended'))
    attempt.signal.removeEventListener('abort', onAbort)
    await within(STOP_MS_MAX, Promise.allSettled(running.values()))
  }

  return {
    async step(key, options, fn) {
      scope.signal.throwIfAborted()
      refuseMisuse(key, options, running)
      const taken = take(work, key, options, fn).finally(() => running.delete(key))
      running.set(key, taken)
      taken.catch(() => undefined)
      return await taken
    },
    async conclude(outcome) {
      const succeeded = outcome.kind === 'end' && hasSucceeded(outcome.cause)
      await settle(!succeeded)
      if (outcome.kind !== 'end' || attempt.lost.aborted) return outcome
      if (work.doubts.size > 0 && (succeeded || (work.stuck && !attempt.signal.aborted))) {
        deps.log.warn({ steps: [...work.doubts] }, 'nobody knows the outcome of a step')
        const { usage } = outcome.cause
        return { kind: 'end', cause: { kind: 'error', code: 'in_doubt', ...(usage && { usage }) } }
      }
      if (!succeeded) await undoAll(deps, attempt, records, work.undo)
      return outcome
    },
  }
}

type Work = {
  readonly attempt: Attempt
  readonly records: StepRecords
  readonly signal: AbortSignal
  readonly undo: Undo[]
  /** Cut, or left by an earlier attempt, and not to be repeated by policy: while there is one, the run does not succeed. */
  readonly doubts: Set<string>
  /** The outside could not say either: no further step is taken. */
  stuck: boolean
}

type Effect<T> = (call: StepCall) => Promise<T> | T

/** One step from its intent to its outcome. */
async function take<T>(
  work: Work,
  key: string,
  options: StepOptions<T>,
  fn: Effect<T>,
): Promise<T> {
  const { records, signal, doubts } = work
  if (work.stuck) throw inDoubt([...doubts])
  let begun = await records.begin(key, options, options.policy === 'retry')
  if (begun.kind === 'begun' && doubts.has(key)) begun = { ...begun, kind: 'in_doubt' }
  if (begun.kind === 'in_doubt') {
    doubts.add(key)
    const { idempotencyKey } = begun
    const answer = await ask(work, key, options, { idempotencyKey, signal })
    if (answer.kind === 'done')
      return settle(work, key, options, await keep(work, key, answer.result))
    work.stuck = answer.kind === 'unknown'
    if (answer.kind === 'not_done') begun = await records.begin(key, options, true)
  }
  if (begun.kind === 'in_doubt') throw inDoubt([key])
  doubts.delete(key)
  if (begun.kind === 'recorded') return settle(work, key, options, recorded<T>(key, begun))
  return settle(work, key, options, await call(work, key, options, begun, fn))
}

async function ask<T>(
  { records, signal }: Work,
  key: string,
  { policy, lookup }: StepOptions<T>,
  call: StepCall,
): Promise<StepAnswer<T>> {
  if (policy !== 'ask' || !lookup) return { kind: 'unknown' }
  try {
    return await lookup(call)
  } catch (error) {
    signal.throwIfAborted()
    records.log.warn({ err: error, step: key }, 'the outside could not be asked')
    return { kind: 'unknown' }
  }
}

async function call<T>(
  work: Work,
  key: string,
  { policy, signal: own }: StepOptions<T>,
  { idempotencyKey, first }: { idempotencyKey: string; first: boolean },
  fn: Effect<T>,
): Promise<T> {
  const { records, signal, attempt } = work
  // What has certainly not begun is not in doubt.
  if (signal.aborted && first) await records.withdraw(key)
  signal.throwIfAborted()
  attempt.held.assertHeld()
  let value: T
  try {
    value = await fn({ idempotencyKey, signal })
  } catch (error) {
    // Cut in the middle: nobody knows what it did, and the record says no more than that.
    if (signal.aborted || own?.aborted) {
      if (policy !== 'retry') work.doubts.add(key)
    } else if (error instanceof AgentFailure && error.retryable) {
      if (first) await records.withdraw(key)
    } else await records.end({ key, outcome: 'failed', result: reasonOf(error) })
    throw error
  }
  return await keep(work, key, value)
}

/** Makes a result durable, and gives what every later attempt will be given. */
async function keep<T>({ records }: Work, key: string, value: T): Promise<T> {
  const json = serialised(key, value)
  if (json instanceof AgentFailure) {
    await records.end({ key, outcome: 'failed', result: reasonOf(json) })
    throw json
  }
  await records.end({ key, outcome: 'done', result: json })
  return parsed<T>(json)
}

function settle<T>(work: Work, key: string, options: StepOptions<T>, result: T): T {
  work.doubts.delete(key)
  const { compensate, policy } = options
  if (compensate) work.undo.push({ key, policy, run: (call) => compensate(result, call) })
  work.signal.throwIfAborted()
  return result
}

function hasSucceeded({ kind }: EndCause): boolean {
  return kind === 'success' || kind === 'interrupt'
}

function refuseMisuse<T>(
  key: string,
  options: StepOptions<T>,
  running: ReadonlyMap<string, unknown>,
): void {
  if (running.has(key)) {
    throw new AgentFailure(
      'agent_error',
      `step ${key} is being taken already; keys name one effect`,
    )
  }
  if (options.policy === 'ask' && !options.lookup) {
    throw new AgentFailure('agent_error', `step ${key}: the policy "ask" needs a lookup`)
  }
}

function inDoubt(keys: readonly string[]): AgentFailure {
  const steps = keys.join(', ')
  return new AgentFailure('in_doubt', `nobody knows what an earlier attempt did: ${steps}`)
}
