import {
  agentHistory,
  attemptEvent,
  closingEvents,
  type EndCause,
  foldEvents,
  withdrawalEvents,
} from '@holdfast/protocol'
import { asError, backoffMs, HoldfastError, wait, within } from '@holdfast/std'
import {
  type AttemptInput,
  type Claimed,
  type EndingCause,
  readAttemptInput,
  recordStaleWrite,
  releaseRun,
  type Store,
  type Wakeups,
} from '@holdfast/store'
import type { Logger } from 'pino'
import { abortCauseOf } from './abort.ts'
import { type Agent, AgentFailure, type AgentResult, type AgentRun } from './agents/agent.ts'
import type { Appender } from './appender.ts'
import { type Attempt, openAttempt } from './attempt.ts'
import { finishAttempt } from './finish.ts'
import type { Instant } from './instant.ts'
import type { HeldLease, LeaseKeeper } from './lease-keeper.ts'
import type { RunnerMetrics } from './metrics.ts'

export type ExecuteDeps = {
  readonly store: Store
  readonly wakeups: Pick<Wakeups, 'publish'>
  readonly keeper: LeaseKeeper
  readonly appender: Appender
  readonly agents: ReadonlyMap<string, Agent>
  readonly metrics: RunnerMetrics
  readonly log: Logger
}

/** How an attempt's computing ended, before anything of it was recorded. */
type Outcome =
  | { kind: 'end'; cause: EndCause }
  | { kind: 'release'; command: 'hand_back' | 'retry'; delayMs: number }
  /** The right is lost: nothing more is written for this run. */
  | { kind: 'lost' }

/** An agent that does not stop when told is waited for no longer than this; what it still writes is refused. */
const STOP_MS_MAX = 5000

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
  const attempt = await beginAttempt(deps, claimed, claimedAt)
  if (!attempt) return
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
  const attempt = await beginAttempt(deps, claimed, claimedAt)
  if (!attempt) return
  try {
    const cause: EndCause =
      claimed.cause === 'cancel' ? { kind: 'cancel' } : { kind: 'error', code: claimed.cause }
    await finishAttempt({ ...deps, log: childLog(deps, claimed) }, attempt, cause)
  } finally {
    attempt.close()
  }
}

function childLog(deps: ExecuteDeps, { lease }: Claimed): Logger {
  return deps.log.child({ runId: lease.runId, epoch: lease.epoch })
}

/** Renews from the first moment; reads what the attempt begins with. `null`: lost before it began. */
async function beginAttempt(
  deps: ExecuteDeps,
  claimed: Claimed,
  claimedAt: Instant,
): Promise<Attempt | null> {
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
  const input = await readInput(deps, claimed, held)
  if (!input) {
    held.release()
    return null
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
  if (early === 'cancel') listener.cancel()
  return attempt
}

async function readInput(
  deps: ExecuteDeps,
  claimed: Claimed,
  held: HeldLease,
): Promise<AttemptInput | null> {
  for (let tries = 0; ; tries += 1) {
    try {
      return await readAttemptInput(deps.store, claimed.lease)
    } catch (error) {
      childLog(deps, claimed).warn({ err: error }, 'an attempt could not read its input')
      const temporary = error instanceof HoldfastError && error.kind === 'unavailable'
      if (!temporary || held.leftMs() <= 0) return null
      await wait(backoffMs(tries, { baseMs: 50, capMs: 1000 }))
    }
  }
}

async function decideOutcome(deps: ExecuteDeps, attempt: Attempt, log: Logger): Promise<Outcome> {
  const { claimed, input } = attempt
  if (claimed.reason !== 'first' && input.toolCallStarted && input.effects === 'unknown') {
    // What the lost attempt did outside is not known, and it is never repeated silently.
    return { kind: 'end', cause: { kind: 'error', code: 'in_doubt' } }
  }
  const agent = deps.agents.get(claimed.agent)
  if (!agent) return { kind: 'release', command: 'hand_back', delayMs: 1000 }
  const deadline = new AbortController()
  wait(claimed.deadlineLeftMs, deadline.signal).then(
    () => attempt.abort('deadline'),
    () => undefined,
  )
  try {
    await attempt.begin(openingEvents(attempt))
    const result = await untilStopped(agent.run(agentRun(attempt, log)), attempt, log)
    return { kind: 'end', cause: causeOfResult(result) }
  } catch (error) {
    return outcomeOfError(attempt, error, log)
  } finally {
    deadline.abort()
    if (attempt.abortedAtMs !== null) {
      deps.metrics.cancelToCloseSeconds.observe((performance.now() - attempt.abortedAtMs) / 1000)
    }
  }
}

/** What the log says before the agent does: that an attempt begins, and what of the lost one is withdrawn. */
function openingEvents({ claimed, input, fold }: Attempt) {
  const { epoch } = claimed.lease
  if (claimed.reason === 'retry') return [attemptEvent(epoch, 'retry')]
  if (claimed.reason === 'first') {
    const state =
      input.state === undefined
        ? []
        : [{ type: 'STATE_SNAPSHOT', snapshot: input.state } as (typeof opening)[number]]
    const opening = [attemptEvent(epoch, 'first')]
    return [...opening, ...state]
  }
  return withdrawalEvents({
    fold,
    epoch,
    reason: claimed.reason,
    history: input.history.map(({ message }) => message),
    state: input.state,
  })
}

function agentRun(attempt: Attempt, log: Logger): AgentRun {
  const { claimed, input } = attempt
  const history = input.history.map(({ message }) => message)
  return {
    runId: claimed.lease.runId,
    conversationId: claimed.lease.conversationId,
    tenantId: claimed.lease.tenantId,
    userId: claimed.userId,
    epoch: claimed.lease.epoch,
    reason: claimed.reason,
    messages: agentHistory(history, {
      history: input.historyMode,
      statuses: new Map(input.history.map(({ message, status }) => [message.id, status])),
    }),
    state: input.state,
    tools: input.tools,
    context: input.context,
    forwardedProps: input.forwardedProps,
    usedIds: input.usedIds,
    history,
    signal: attempt.signal,
    log,
    emit: (events) => attempt.emit(events),
    assertHeld: () => attempt.held.assertHeld(),
  }
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

/** Writes down how the attempt ended: what was delivered first, then the end or the release. */
async function record(deps: ExecuteDeps, attempt: Attempt, outcome: Outcome): Promise<void> {
  if (outcome.kind === 'lost') {
    deps.metrics.leasesLost.inc()
    deps.log.warn('the lease was lost; the attempt stopped')
    return
  }
  try {
    await attempt.log.settled()
  } catch (error) {
    const { lease } = attempt.claimed
    if (abortCauseOf(attempt.signal) === 'lease_lost' || attempt.held.leftMs() <= 0) {
      deps.metrics.leasesLost.inc()
      deps.log.warn({ err: error, runId: lease.runId }, 'the last events could not be written')
      return
    }
    deps.log.error({ err: asError(error) }, 'events were refused by the database')
    await finishAttempt(deps, attempt, { kind: 'error', code: 'internal' })
    return
  }
  if (outcome.kind === 'release') await release(deps, attempt, outcome)
  else await finishAttempt(deps, attempt, outcome.cause)
}

async function release(
  deps: ExecuteDeps,
  attempt: Attempt,
  { command, delayMs }: Extract<Outcome, { kind: 'release' }>,
): Promise<void> {
  const { lease } = attempt.claimed
  const closers = closingEvents(attempt.fold, { answerTools: false, mintId: () => '' })
  const fold = foldEvents(attempt.fold, closers)
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
      if (attempt.held.leftMs() <= 0) return
      await wait(backoffMs(tries, { baseMs: 50, capMs: 1000 }))
    }
  }
}
