import { EventType } from '@ag-ui/core'
import type { AgUiEvent } from './event.ts'

export type OpenKind = 'text' | 'tool' | 'reasoning' | 'reasoning_message' | 'step' | 'subagent'

/** Something that was started and not ended. `start` is the event that opened it, as logged. */
export type OpenConstruct = { kind: OpenKind; id: string; start: AgUiEvent }

/** What is open after `event`, in order of opening; the same array if nothing changed. */
export function openAfter(open: OpenConstruct[], event: AgUiEvent): OpenConstruct[] {
  if (endsRun(event) || event.type === EventType.RUN_STARTED) return open.length === 0 ? open : []
  const opened = openedBy(event)
  if (opened) {
    const known = open.some((one) => isSame(one, opened.kind, opened.id, event))
    return known ? open : [...open, opened]
  }
  const closed = closedBy(event)
  if (!closed) return open
  return open.filter((one) => !isSame(one, closed.kind, closed.id, event))
}

/** RUN_FINISHED or RUN_ERROR: the last event of a run's log. */
export function endsRun(event: AgUiEvent): boolean {
  return event.type === EventType.RUN_FINISHED || event.type === EventType.RUN_ERROR
}

/** Steps are named per agent: a subagent may have a step of its parent's name open at once. */
function isSame(one: OpenConstruct, kind: OpenKind, id: string, event: AgUiEvent): boolean {
  if (one.kind !== kind || one.id !== id) return false
  return kind !== 'step' || ownerOf(one.start) === ownerOf(event)
}

function ownerOf(event: AgUiEvent): string | undefined {
  return 'subagentRunId' in event ? event.subagentRunId : undefined
}

function openedBy(event: AgUiEvent): OpenConstruct | undefined {
  switch (event.type) {
    case EventType.TEXT_MESSAGE_START:
      return { kind: 'text', id: event.messageId, start: event }
    case EventType.TOOL_CALL_START:
      return { kind: 'tool', id: event.toolCallId, start: event }
    case EventType.REASONING_START:
      return { kind: 'reasoning', id: event.messageId, start: event }
    case EventType.REASONING_MESSAGE_START:
      return { kind: 'reasoning_message', id: event.messageId, start: event }
    case EventType.STEP_STARTED:
      return { kind: 'step', id: event.stepName, start: event }
    case EventType.SUBAGENT_STARTED:
      return { kind: 'subagent', id: event.subagentRunId, start: event }
    default:
      return undefined
  }
}

function closedBy(event: AgUiEvent): { kind: OpenKind; id: string } | undefined {
  switch (event.type) {
    case EventType.TEXT_MESSAGE_END:
      return { kind: 'text', id: event.messageId }
    case EventType.TOOL_CALL_END:
      return { kind: 'tool', id: event.toolCallId }
    case EventType.REASONING_END:
      return { kind: 'reasoning', id: event.messageId }
    case EventType.REASONING_MESSAGE_END:
      return { kind: 'reasoning_message', id: event.messageId }
    case EventType.STEP_FINISHED:
      return { kind: 'step', id: event.stepName }
    case EventType.SUBAGENT_FINISHED:
    case EventType.SUBAGENT_ERROR:
      return { kind: 'subagent', id: event.subagentRunId }
    default:
      return undefined
  }
}
