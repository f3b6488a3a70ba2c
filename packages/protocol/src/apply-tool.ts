import {
  type AssistantMessage,
  mergeMetadata,
  type ToolCall,
  type ToolCallArgsEvent,
  type ToolCallEndEvent,
  type ToolCallResultEvent,
  type ToolCallStartEvent,
} from '@ag-ui/core'
import type { Draft } from './draft.ts'
import type { Message } from './event.ts'

/** A call that is known already keeps its arguments: a start carries none. */
export function startToolCall(draft: Draft, event: ToolCallStartEvent): void {
  const known = callOf(draft, event.toolCallId)
  if (known) {
    known.function.name = event.toolCallName
    note(known, event)
    return
  }
  const call: ToolCall = {
    id: event.toolCallId,
    type: 'function',
    function: { name: event.toolCallName, arguments: '' },
  }
  note(call, event)
  const parent = event.parentMessageId ? draft.find(event.parentMessageId) : undefined
  if (event.parentMessageId && parent?.role === 'assistant') {
    const message = draft.edit(event.parentMessageId)
    if (message?.role !== 'assistant') return
    message.toolCalls = [...(message.toolCalls ?? []), call]
    draft.callAdded(call.id, message.id)
    return
  }
  // A parent id that another kind of message has cannot be taken: the call's own id serves.
  const id = event.parentMessageId && !parent ? event.parentMessageId : event.toolCallId
  const isNew = draft.indexOf(id) === -1
  const message: AssistantMessage = { id, role: 'assistant', toolCalls: [call] }
  if (isNew && event.subagentRunId != null) message.subagentRunId = event.subagentRunId
  draft.push(message)
}

export function appendArguments(draft: Draft, event: ToolCallArgsEvent): void {
  const call = callOf(draft, event.toolCallId)
  if (!call) return
  call.function.arguments += event.delta
  note(call, event)
}

export function noteToolCall(draft: Draft, event: ToolCallEndEvent): void {
  if (event.metadata === undefined) return
  const call = callOf(draft, event.toolCallId)
  if (call) note(call, event)
}

/** A result stands right behind its call and the results before it, however late it comes. */
export function addToolResult(draft: Draft, event: ToolCallResultEvent): void {
  const message: Message = {
    id: event.messageId,
    toolCallId: event.toolCallId,
    role: event.role ?? 'tool',
    content: event.content,
    ...(event.subagentRunId != null && { subagentRunId: event.subagentRunId }),
    ...(event.metadata !== undefined && { metadata: { ...event.metadata } }),
  }
  const holder = draft.indexOfCall(event.toolCallId)
  if (holder === -1) return draft.push(message)
  let at = holder + 1
  while (draft.messages[at]?.role === 'tool') at += 1
  if (at === draft.messages.length) draft.push(message)
  else draft.insert(at, message)
}

function callOf(draft: Draft, toolCallId: string): ToolCall | undefined {
  return draft.editOwnerOf(toolCallId)?.toolCalls?.find((call) => call.id === toolCallId)
}

function note(call: ToolCall, event: { metadata?: Record<string, unknown> }) {
  const merged = mergeMetadata(call.metadata, event.metadata)
  if (merged) call.metadata = merged
}
