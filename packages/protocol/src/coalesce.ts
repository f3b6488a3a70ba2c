import {
  EventType,
  type ReasoningMessageContentEvent,
  type TextMessageContentEvent,
  type ToolCallArgsEvent,
} from '@ag-ui/core'
import type { AgUiEvent } from './event.ts'

type Delta = TextMessageContentEvent | ReasoningMessageContentEvent | ToolCallArgsEvent

/**
 * The same log in fewer events: neighbouring deltas of one thing become one, empty ones go, and
 * nothing moves past anything else. Folds to the same, except that a message whose only deltas
 * were empty may have no content instead of an empty one.
 */
export function coalesce(events: readonly AgUiEvent[]): AgUiEvent[] {
  const merged: AgUiEvent[] = []
  let last: Delta | undefined
  for (const event of events) {
    const delta = plainDelta(event)
    if (!delta) {
      merged.push(event)
      last = undefined
    } else if (last && continues(last, delta)) {
      last.delta += delta.delta
    } else if (delta.delta !== '') {
      last = { ...delta }
      merged.push(last)
    }
  }
  return merged
}

/** A delta that says nothing but its text: metadata belongs to one event and stays with it. */
function plainDelta(event: AgUiEvent): Delta | undefined {
  switch (event.type) {
    case EventType.TEXT_MESSAGE_CONTENT:
    case EventType.REASONING_MESSAGE_CONTENT:
    case EventType.TOOL_CALL_ARGS:
      return event.metadata === undefined && event.rawEvent === undefined ? event : undefined
    default:
      return undefined
  }
}

function continues(last: Delta, next: Delta): boolean {
  if (last.type !== next.type || last.subagentRunId !== next.subagentRunId) return false
  return targetOf(last) === targetOf(next)
}

function targetOf(delta: Delta): string {
  return delta.type === EventType.TOOL_CALL_ARGS ? delta.toolCallId : delta.messageId
}
