import {
  type AgUiEvent,
  agentHistory,
  attemptEvent,
  closingEvents,
  EventType,
  type Message,
  withdrawalEvents,
} from '@holdfast/protocol'
import type { Agent, AgentRun } from './agents/agent.ts'
import type { Attempt } from './attempt.ts'
import { checkpoint, savedCheckpoint } from './checkpoints.ts'
import type { FencedWriteDeps } from './fenced-write.ts'
import type { Spans } from './spans.ts'
import type { Steps } from './steps.ts'

/**
 * What the log says before the agent does: that an attempt begins, and what of the lost one is withdrawn. Nothing is,
 * when the agent goes on from a checkpoint that is the end of the log; what was left open is closed all the same.
 */
export function openingEvents(attempt: Attempt, agent: Agent): AgUiEvent[] {
  const { claimed, input, fold } = attempt
  const { epoch } = claimed.lease
  if (claimed.reason === 'retry') return [attemptEvent(epoch, 'retry')]
  if (claimed.reason === 'first') {
    const begins = attemptEvent(epoch, 'first')
    if (input.state === undefined) return [begins]
    return [begins, { type: EventType.STATE_SNAPSHOT, snapshot: input.state }]
  }
  if (savedCheckpoint(attempt, agent)?.current) {
    const closers = closingEvents(fold, { answerTools: false, mintId: () => '' })
    return [...closers, attemptEvent(epoch, claimed.reason)]
  }
  return withdrawalEvents({
    fold,
    epoch,
    reason: claimed.reason,
    history: input.history.map(({ message }) => message),
    state: input.state,
  })
}

/** What the agent sees of the attempt. */
export function agentRun(
  deps: FencedWriteDeps,
  attempt: Attempt,
  agent: Agent,
  { steps, spans }: { steps: Steps; spans: Spans },
): AgentRun {
  const { claimed, input } = attempt
  const history = input.history.map(({ message }) => message)
  const withBytes = (message: Message): Message => {
    const content = input.attached.get(message.id)
    return content ? ({ ...message, content } as Message) : message
  }
  return {
    runId: claimed.lease.runId,
    conversationId: claimed.lease.conversationId,
    tenantId: claimed.lease.tenantId,
    userId: claimed.userId,
    epoch: claimed.lease.epoch,
    reason: claimed.reason,
    messages: agentHistory(history.map(withBytes), {
      history: input.historyMode,
      statuses: new Map(input.history.map(({ message, status }) => [message.id, status])),
      openCalls: new Set(input.openCalls.map(({ toolCallId }) => toolCallId)),
    }),
    state: input.state,
    tools: input.tools,
    context: input.context,
    forwardedProps: input.forwardedProps,
    resume: input.resume,
    openCalls: input.openCalls,
    usedIds: input.usedIds,
    history,
    signal: attempt.signal,
    log: deps.log,
    emit: (events) => attempt.emit(events),
    assertHeld: () => attempt.held.assertHeld(),
    step: (key, options, fn) => steps.step(key, options, fn),
    checkpoint: (data) => checkpoint(deps, attempt, data),
    saved: savedCheckpoint(attempt, agent),
    span: (key, options, fn) => spans.span(key, options, fn),
    artifact: (name, options, body) => attempt.artifacts.write(name, options, body),
  }
}
