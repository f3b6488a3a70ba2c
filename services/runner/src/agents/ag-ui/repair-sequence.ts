import { type AgUiEvent, EventType } from '@holdfast/protocol'
import type { Logger } from 'pino'
import { AgentFailure } from '../agent.ts'
import type { RunIds } from '../run-ids.ts'
import type { Spoken } from './spoken.ts'

type EventOf<T extends EventType> = Extract<AgUiEvent, { type: T }>

/**
 * One event of the upstream (no CHUNK, no snapshot of messages, no terminal one) as events that
 * keep AG-UI's order: what is missing and certain is added, what repeats itself is left out.
 * Continuations carry no owner, since theirs is their opener's.
 * @throws AgentFailure upstream_error where no meaning is certain
 */
export function repaired(event: AgUiEvent, spoken: Spoken, ids: RunIds, log: Logger): AgUiEvent[] {
  const dropped = (why: string): AgUiEvent[] => {
    log.debug({ type: event.type }, `upstream event left out: ${why}`)
    return []
  }
  switch (event.type) {
    case EventType.TEXT_MESSAGE_START:
      return startText(event, spoken, ids)
    case EventType.TEXT_MESSAGE_CONTENT:
      return textContent(event, spoken, ids)
    case EventType.TEXT_MESSAGE_END: {
      if (spoken.echoes.delete(event.messageId)) return []
      const text = spoken.texts.find(event.messageId)
      return text?.phase === 'open' ? spoken.texts.end(text, common(event)) : dropped('not open')
    }
    case EventType.TOOL_CALL_START:
      return startCall(event, spoken, ids)
    case EventType.TOOL_CALL_ARGS:
      return callArguments(event, spoken)
    case EventType.TOOL_CALL_END: {
      const call = spoken.calls.find(event.toolCallId)
      return call?.phase === 'open' ? spoken.calls.end(call, common(event)) : dropped('not open')
    }
    case EventType.TOOL_CALL_RESULT:
      return result(event, spoken, ids, dropped)
    case EventType.REASONING_MESSAGE_START:
      return startReasoning(event, spoken)
    case EventType.REASONING_MESSAGE_CONTENT:
      return reasoningContent(event, spoken)
    case EventType.REASONING_MESSAGE_END: {
      const reasoning = spoken.reasonings.find(event.messageId)
      if (reasoning?.phase !== 'open') return dropped('not open')
      return spoken.reasonings.end(reasoning, common(event))
    }
    case EventType.REASONING_ENCRYPTED_VALUE:
      return encryptedValue(event, spoken, dropped)
    case EventType.ACTIVITY_SNAPSHOT: {
      const known = spoken.activities.get(event.messageId)
      const messageId = known ?? ids.message(event.messageId)
      spoken.activities.set(event.messageId, messageId)
      return [{ ...event, ...spoken.scopes.owner(event), messageId }]
    }
    case EventType.ACTIVITY_DELTA: {
      const messageId = spoken.activities.get(event.messageId)
      if (messageId === undefined) return dropped('no such activity in this run')
      const { subagentRunId: _, ...rest } = event
      return [{ ...rest, messageId }]
    }
    case EventType.CUSTOM:
      if (event.name.startsWith('holdfast.')) return dropped('a reserved name')
      return [{ ...event, ...spoken.scopes.owner(event) }]
    case EventType.STATE_SNAPSHOT:
    case EventType.STATE_DELTA:
      return [{ ...event, ...spoken.scopes.owner(event) }]
    default:
      return scoped(event, spoken, dropped)
  }
}

function scoped(
  event: AgUiEvent,
  spoken: Spoken,
  dropped: (why: string) => AgUiEvent[],
): AgUiEvent[] {
  switch (event.type) {
    case EventType.REASONING_START:
    case EventType.REASONING_END:
      return spoken.scopes.reasoning(event, spoken.reasonings) ?? dropped('not open')
    case EventType.STEP_STARTED:
    case EventType.STEP_FINISHED:
      return spoken.scopes.step(event) ?? dropped('not open')
    case EventType.SUBAGENT_STARTED: {
      const { parentToolCallId, parentMessageId, ...rest } = event
      return spoken.scopes.startSubagent({
        ...rest,
        ...(parentToolCallId !== undefined && {
          parentToolCallId: spoken.calls.find(parentToolCallId)?.id ?? parentToolCallId,
        }),
        ...(parentMessageId !== undefined && {
          parentMessageId: spoken.texts.idOf(parentMessageId),
        }),
      })
    }
    case EventType.SUBAGENT_FINISHED:
    case EventType.SUBAGENT_ERROR:
      return spoken.scopes.endSubagent(event) ?? dropped('not open')
    default:
      return dropped('not part of a run')
  }
}

function startText(
  event: EventOf<EventType.TEXT_MESSAGE_START>,
  spoken: Spoken,
  ids: RunIds,
): AgUiEvent[] {
  const role = event.role ?? 'assistant'
  if (role === 'user' && ids.history.has(event.messageId)) {
    spoken.echoes.add(event.messageId)
    return []
  }
  const { subagentRunId: _, ...rest } = event
  // A message that a tool call has made already belongs to that call's owner.
  const isThere = spoken.texts.find(event.messageId)?.phase === 'named'
  const owner = isThere ? {} : spoken.scopes.owner(event)
  return spoken.texts.start(event.messageId, (messageId) => {
    if (role !== 'assistant') spoken.roles.set(messageId, role)
    return { ...rest, ...owner, messageId, role }
  })
}

function textContent(
  event: EventOf<EventType.TEXT_MESSAGE_CONTENT>,
  spoken: Spoken,
  ids: RunIds,
): AgUiEvent[] {
  if (spoken.echoes.has(event.messageId)) return []
  const opening =
    spoken.texts.find(event.messageId)?.phase === 'open'
      ? []
      : startText(opener(event), spoken, ids)
  const text = spoken.texts.find(event.messageId)
  if (!text) return opening
  const content = spoken.texts.content(text, event.delta, (delta) => ({
    ...common(event),
    type: EventType.TEXT_MESSAGE_CONTENT,
    messageId: text.id,
    delta,
  }))
  return [...opening, ...content]
}

/** The START that a CONTENT without one implies. */
function opener(
  event: EventOf<EventType.TEXT_MESSAGE_CONTENT>,
): EventOf<EventType.TEXT_MESSAGE_START> {
  const { messageId, subagentRunId } = event
  return {
    type: EventType.TEXT_MESSAGE_START,
    messageId,
    ...(subagentRunId !== undefined && { subagentRunId }),
  }
}

function startCall(
  event: EventOf<EventType.TOOL_CALL_START>,
  spoken: Spoken,
  ids: RunIds,
): AgUiEvent[] {
  const { parentMessageId, subagentRunId: _, ...rest } = event
  // A call that stands in a message which is there already belongs to that message's owner.
  const isThere = parentMessageId !== undefined && spoken.texts.find(parentMessageId)
  const owner = isThere ? {} : spoken.scopes.owner(event)
  const parentId = parentMessageId === undefined ? undefined : spoken.texts.idOf(parentMessageId)
  // Only an assistant's message can hold a call.
  if (parentId === undefined || spoken.roles.has(parentId)) {
    const build = (toolCallId: string): AgUiEvent => ({
      ...rest,
      ...spoken.scopes.owner(event),
      toolCallId,
    })
    return spoken.calls.start(event.toolCallId, build, ids.callAndMessage)
  }
  return spoken.calls.start(event.toolCallId, (toolCallId) => ({
    ...rest,
    ...owner,
    toolCallId,
    parentMessageId: parentId,
  }))
}

function callArguments(event: EventOf<EventType.TOOL_CALL_ARGS>, spoken: Spoken): AgUiEvent[] {
  const call = spoken.calls.find(event.toolCallId)
  if (call?.phase !== 'open') {
    throw new AgentFailure(
      'upstream_error',
      'the upstream sent arguments of a call that is not open',
    )
  }
  return spoken.calls.content(call, event.delta, (delta) => ({
    ...common(event),
    type: EventType.TOOL_CALL_ARGS,
    toolCallId: call.id,
    delta,
  }))
}

function result(
  event: EventOf<EventType.TOOL_CALL_RESULT>,
  spoken: Spoken,
  ids: RunIds,
  dropped: (why: string) => AgUiEvent[],
): AgUiEvent[] {
  const call = spoken.calls.find(event.toolCallId)
  if (!call) return dropped('a result for no call of this run')
  if (spoken.answered.has(call.id)) return dropped('the call has its result already')
  spoken.answered.add(call.id)
  const messageId = ids.message(event.messageId)
  spoken.results.set(event.messageId, messageId)
  return [
    ...spoken.calls.end(call),
    { ...event, ...spoken.scopes.owner(event), messageId, toolCallId: call.id },
  ]
}

function startReasoning(
  event: EventOf<EventType.REASONING_MESSAGE_START>,
  spoken: Spoken,
): AgUiEvent[] {
  const { subagentRunId: _, ...rest } = event
  return spoken.reasonings.start(event.messageId, (messageId) => ({
    ...rest,
    ...spoken.scopes.reasoningOwner(messageId, event),
    messageId,
  }))
}

function reasoningContent(
  event: EventOf<EventType.REASONING_MESSAGE_CONTENT>,
  spoken: Spoken,
): AgUiEvent[] {
  const { messageId: upstreamId } = event
  const opening =
    spoken.reasonings.find(upstreamId)?.phase === 'open'
      ? []
      : startReasoning(
          {
            type: EventType.REASONING_MESSAGE_START,
            messageId: upstreamId,
            role: 'reasoning',
            ...(event.subagentRunId !== undefined && { subagentRunId: event.subagentRunId }),
          },
          spoken,
        )
  const reasoning = spoken.reasonings.find(upstreamId)
  if (!reasoning) return opening
  const content = spoken.reasonings.content(reasoning, event.delta, (delta) => ({
    ...common(event),
    type: EventType.REASONING_MESSAGE_CONTENT,
    messageId: reasoning.id,
    delta,
  }))
  return [...opening, ...content]
}

function encryptedValue(
  event: EventOf<EventType.REASONING_ENCRYPTED_VALUE>,
  spoken: Spoken,
  dropped: (why: string) => AgUiEvent[],
): AgUiEvent[] {
  const { subagentRunId: _, ...rest } = event
  const entity =
    event.subtype === 'tool-call'
      ? spoken.calls.find(event.entityId)
      : (spoken.reasonings.find(event.entityId) ?? spoken.texts.find(event.entityId))
  return entity ? [{ ...rest, entityId: entity.id }] : dropped('a value for nothing in this run')
}

/** What every event may carry besides its own fields. */
function common(event: AgUiEvent): Pick<AgUiEvent, 'timestamp' | 'metadata'> {
  return {
    ...(event.timestamp !== undefined && { timestamp: event.timestamp }),
    ...(event.metadata !== undefined && { metadata: event.metadata }),
  }
}
