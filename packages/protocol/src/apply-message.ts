import {
  type ActivityDeltaEvent,
  type ActivityMessage,
  type ActivitySnapshotEvent,
  EventType,
  type Metadata,
  mergeMetadata,
  type ReasoningEncryptedValueEvent,
  type RunStartedEvent,
} from '@ag-ui/core'
import { addToolResult, appendArguments, noteToolCall, startToolCall } from './apply-tool.ts'
import type { Draft } from './draft.ts'
import type { AgUiEvent, Message } from './event.ts'
import { patched } from './json-patch.ts'
import { mergeSnapshot, withoutNullOwner } from './snapshot-merge.ts'

/** What one event does to the messages: the same as in AG-UI's `defaultApplyEvents`. */
export function applyToMessages(draft: Draft, event: AgUiEvent): void {
  switch (event.type) {
    case EventType.RUN_STARTED:
      return addInput(draft, event)
    case EventType.TEXT_MESSAGE_START:
      return startMessage(draft, event.metadata, {
        id: event.messageId,
        role: event.role ?? 'assistant',
        content: '',
        ...(event.name !== undefined && { name: event.name }),
        ...owner(event),
      })
    case EventType.REASONING_MESSAGE_START:
      return startMessage(draft, event.metadata, {
        id: event.messageId,
        role: 'reasoning',
        content: '',
        ...owner(event),
      })
    case EventType.TEXT_MESSAGE_CONTENT:
    case EventType.REASONING_MESSAGE_CONTENT:
      return appendContent(draft, event.messageId, event.delta, event.metadata)
    case EventType.TEXT_MESSAGE_END:
    case EventType.REASONING_MESSAGE_END:
      return noteMessage(draft, event.messageId, event.metadata)
    case EventType.TOOL_CALL_START:
      return startToolCall(draft, event)
    case EventType.TOOL_CALL_ARGS:
      return appendArguments(draft, event)
    case EventType.TOOL_CALL_END:
      return noteToolCall(draft, event)
    case EventType.TOOL_CALL_RESULT:
      return addToolResult(draft, event)
    case EventType.MESSAGES_SNAPSHOT:
      return draft.replace(mergeSnapshot(draft.messages, event))
    case EventType.ACTIVITY_SNAPSHOT:
      return showActivity(draft, event)
    case EventType.ACTIVITY_DELTA:
      return patchActivity(draft, event)
    case EventType.REASONING_ENCRYPTED_VALUE:
      return setEncryptedValue(draft, event)
    default:
      return
  }
}

function owner(event: { subagentRunId?: string }): { subagentRunId?: string } {
  return event.subagentRunId == null ? {} : { subagentRunId: event.subagentRunId }
}

function addInput(draft: Draft, event: RunStartedEvent) {
  for (const message of event.input?.messages ?? []) {
    if (draft.indexOf(message.id) === -1) draft.push(withoutNullOwner(message))
  }
}

/** A second start of an id goes on with its message, unless an activity has that id. */
function startMessage(draft: Draft, metadata: Metadata | undefined, fresh: Message) {
  const existing = draft.find(fresh.id)
  if (!existing) draft.push(fresh)
  noteMessage(draft, fresh.id, metadata)
}

function appendContent(
  draft: Draft,
  messageId: string,
  delta: string,
  metadata: Metadata | undefined,
) {
  const message = draft.edit(messageId)
  if (!message || message.role === 'activity') return
  message.content = (typeof message.content === 'string' ? message.content : '') + delta
  noteOn(message, metadata)
}

function noteMessage(draft: Draft, messageId: string, metadata: Metadata | undefined) {
  if (metadata === undefined || draft.find(messageId)?.role === 'activity') return
  noteOn(draft.edit(messageId), metadata)
}

function noteOn(target: { metadata?: Metadata } | undefined, metadata: Metadata | undefined) {
  if (!target || metadata === undefined) return
  const merged = mergeMetadata(target.metadata, metadata)
  if (merged) target.metadata = merged
}

function showActivity(draft: Draft, event: ActivitySnapshotEvent) {
  const index = draft.indexOf(event.messageId)
  const existing = draft.messages[index]
  const fresh: ActivityMessage = {
    id: event.messageId,
    role: 'activity',
    activityType: event.activityType,
    content: event.content,
    ...owner(event),
  }
  if (!existing) draft.push(fresh)
  else if (event.replace ?? true) draft.put(index, replacing(existing, fresh))
  else if (existing.role !== 'activity') return
  noteOn(draft.edit(event.messageId), event.metadata)
}

/** What was noted on an activity stays, but it belongs to whoever shows it now. */
function replacing(existing: Message, fresh: ActivityMessage): ActivityMessage {
  if (existing.role !== 'activity') return fresh
  const { subagentRunId: _, ...kept } = existing
  return { ...kept, ...fresh }
}

/** Metadata is kept even if the patch does not fit. */
function patchActivity(draft: Draft, event: ActivityDeltaEvent) {
  if (draft.find(event.messageId)?.role !== 'activity') return
  const activity = draft.edit(event.messageId)
  if (activity?.role !== 'activity') return
  noteOn(activity, event.metadata)
  const result = patched(activity.content ?? {}, event.patch)
  if (!result.ok) return
  activity.content = result.document as Record<string, unknown>
  activity.activityType = event.activityType
}

function setEncryptedValue(draft: Draft, event: ReasoningEncryptedValueEvent) {
  if (event.subtype === 'tool-call') {
    const holder = draft.editOwnerOf(event.entityId)
    const call = holder?.toolCalls?.find((one) => one.id === event.entityId)
    if (call) call.encryptedValue = event.encryptedValue
    return
  }
  if (draft.find(event.entityId)?.role === 'activity') return
  const message = draft.edit(event.entityId)
  if (message && message.role !== 'activity') message.encryptedValue = event.encryptedValue
}
