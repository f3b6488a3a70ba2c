import {
  type AgUiEvent,
  agentHistory,
  attemptEvent,
  EventType,
  withdrawalEvents,
} from '@holdfast/protocol'
import type { Logger } from 'pino'
import type { AgentRun } from './agents/agent.ts'
import type { Attempt } from './attempt.ts'

/** What the log says before the agent does: that an attempt begins, and what of the lost one is withdrawn. */
export function openingEvents({ claimed, input, fold }: Attempt): AgUiEvent[] {
  const { epoch } = claimed.lease
  if (claimed.reason === 'retry') return [attemptEvent(epoch, 'retry')]
  if (claimed.reason === 'first') {
    const begins = attemptEvent(epoch, 'first')
    if (input.state === undefined) return [begins]
    return [begins, { type: EventType.STATE_SNAPSHOT, snapshot: input.state }]
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
export function agentRun(attempt: Attempt, log: Logger): AgentRun {
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
    log,
    emit: (events) => attempt.emit(events),
    assertHeld: () => attempt.held.assertHeld(),
    step: async () => Promise.reject(new Error('steps are not recorded yet')),
    checkpoint: async () => Promise.reject(new Error('checkpoints are not saved yet')),
    saved: null,
    span: async (_key, _options, fn) => await fn(),
    artifact: (name, options, body) => attempt.artifacts.write(name, options, body),
  }
}
