import type { EndCause } from '@holdfast/protocol'
import { backoffMs, wait, within } from '@holdfast/std'
import type { Logger } from 'pino'
import { abortCauseOf } from './abort.ts'
import { agentRun, openingEvents } from './agent-run.ts'
import { type Agent, AgentFailure, type AgentResult } from './agents/agent.ts'
import type { Attempt } from './attempt.ts'
import type { ExecuteDeps } from './execute-deps.ts'
import { isInDoubt, nameLostCalls } from './in-doubt.ts'
import { openSpans } from './spans.ts'
import { openSteps } from './steps.ts'

/** How an attempt's computing ended, before anything of it was recorded. */
export type Outcome =
  | { kind: 'end'; cause: EndCause }
  | { kind: 'release'; command: 'hand_back' | 'retry'; delayMs: number }
  /** The right is lost: nothing more is written for this run. */
  | { kind: 'lost' }

/** An agent that does not stop when told is waited for no longer than this; what it still writes is refused. */
const STOP_MS_MAX = 5000

/** Lets the agent work, and says how that ended: by itself, by one of the four causes of an abort, or by a failure. */
export async function decideOutcome(
  deps: ExecuteDeps,
  attempt: Attempt,
  log: Logger,
): Promise<Outcome> {
  const { claimed } = attempt
  const agent = deps.agents.get(claimed.agent)
  if (!agent) return { kind: 'release', command: 'hand_back', delayMs: 1000 }
  const own = { ...deps, log }
  if (isInDoubt(attempt, agent)) {
    // What a lost attempt did outside is not known, and it is never repeated silently.
    await nameLostCalls(own, attempt, agent)
    return { kind: 'end', cause: { kind: 'error', code: 'in_doubt' } }
  }
  const deadline = new AbortController()
  wait(claimed.deadlineLeftMs, deadline.signal).then(
    () => attempt.abort('deadline'),
    () => undefined,
  )
  try {
    await attempt.begin(openingEvents(attempt, agent))
    return await letWork(own, attempt, agent)
  } catch (error) {
    return outcomeOfError(attempt, error, log)
  } finally {
    await attempt.artifacts.close()
    deadline.abort()
  }
}

/** From the agent's first move until nothing of it is left: its steps have ended, or have been undone. */
async function letWork(deps: ExecuteDeps, attempt: Attempt, agent: Agent): Promise<Outcome> {
  const { log, metrics } = deps
  const [steps, spans] = [openSteps(deps, attempt), openSpans(deps, attempt)]
  const run = agentRun(deps, attempt, agent, { steps, spans })
  const ended = await untilStopped(agent.run(run), attempt, log).then(
    (result): Outcome => ({ kind: 'end', cause: causeOfResult(result) }),
    (error: unknown) => outcomeOfError(attempt, error, log),
  )
  if (attempt.abortedAtMs !== null) {
    metrics.cancelToCloseSeconds.observe((performance.now() - attempt.abortedAtMs) / 1000)
  }
  const outcome = await steps.conclude(ended)
  await spans.close()
  return outcome
}

/** The agent's own end; after an abort it has a bounded time to reach it. */
async function untilStopped(
  running: Promise<AgentResult>,
  attempt: Attempt,
  log: Logger,
): Promise<AgentResult> {
  const { signal } = attempt
  const aborted = Promise.withResolvers<void>()
  const onAbort = () => aborted.resolve()
  if (signal.aborted) onAbort()
  else signal.addEventListener('abort', onAbort, { once: true })
  try {
    const first = await Promise.race([
      running.then((result) => ({ result })),
      aborted.promise.then(() => null),
    ])
    const ended =
      first ??
      (await within(
        STOP_MS_MAX,
        running.then((result) => ({ result })),
      ))
    if (ended) return ended.result
    log.error({ agent: attempt.claimed.agent }, 'the agent did not stop when it was told to')
    signal.throwIfAborted()
    throw new AgentFailure('agent_error', 'the agent did not stop')
  } finally {
    signal.removeEventListener('abort', onAbort)
    running.catch(() => undefined)
  }
}

function causeOfResult(result: AgentResult): EndCause {
  const usage = result.usage ? { usage: result.usage } : {}
  switch (result.outcome) {
    case 'success':
      return { kind: 'success', result: result.result, ...usage }
    case 'interrupt':
      return { kind: 'interrupt', interrupts: result.interrupts ?? [], ...usage }
    case 'cancelled':
      return { kind: 'cancel', ...usage }
  }
}

function outcomeOfError(attempt: Attempt, error: unknown, log: Logger): Outcome {
  const { claimed } = attempt
  switch (abortCauseOf(attempt.signal)) {
    case 'lease_lost':
      return { kind: 'lost' }
    case 'cancel':
      return { kind: 'end', cause: { kind: 'cancel' } }
    case 'deadline':
      return { kind: 'end', cause: { kind: 'error', code: 'deadline_exceeded' } }
    case 'drain':
      return { kind: 'release', command: 'hand_back', delayMs: 0 }
    case null:
      break
  }
  if (!(error instanceof AgentFailure)) {
    log.error({ err: error }, 'the agent failed')
    return {
      kind: 'end',
      cause: { kind: 'error', code: attempt.signal.aborted ? 'internal' : 'agent_error' },
    }
  }
  log.warn({ err: error, code: error.code }, 'the agent or its upstream failed')
  const usage = error.usage ? { usage: error.usage } : {}
  const failed: Outcome = { kind: 'end', cause: { kind: 'error', code: error.code, ...usage } }
  if (!error.retryable || attempt.visible || claimed.attemptsUsed >= claimed.maxAttempts)
    return failed
  const delayMs =
    error.retryAfterMs ?? backoffMs(claimed.attemptsUsed - 1, { baseMs: 500, capMs: 30_000 })
  // A retry that could only come after the deadline is a failure now.
  const leftMs = claimed.deadlineLeftMs - (performance.now() - claimed.sentAtMs)
  return delayMs >= leftMs ? failed : { kind: 'release', command: 'retry', delayMs }
}
