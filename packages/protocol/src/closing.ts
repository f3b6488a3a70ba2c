import { EventType } from '@ag-ui/core'
import { assertNever } from '@holdfast/std'
import type { AgUiEvent } from './event.ts'
import { type Fold, type UnansweredCall, unansweredToolCalls } from './fold.ts'
import type { OpenConstruct } from './open-constructs.ts'

export type Closing = {
  /** Give every call without a result one, as a run's end needs it. */
  answerTools: boolean
  /** Makes the id of a tool message. */
  mintId: () => string
  /** What such a result says; 'interrupted' by default. */
  content?: string
  /** Calls that somebody is still expected to answer. */
  pending?: ReadonlySet<string>
  /** Calls of earlier turns that are to be answered as well. */
  earlier?: readonly UnansweredCall[]
}

/** The events after which nothing is open: inner constructs first, then the missing results. */
export function closingEvents(
  fold: Pick<Fold, 'messages' | 'open'>,
  closing: Closing,
): AgUiEvent[] {
  const ends = fold.open.toReversed().map(closerOf)
  if (!closing.answerTools) return ends
  const results = unansweredToolCalls(fold, closing.earlier)
    .filter((call) => !closing.pending?.has(call.toolCallId))
    .map(
      (call): AgUiEvent => ({
        type: EventType.TOOL_CALL_RESULT,
        messageId: closing.mintId(),
        toolCallId: call.toolCallId,
        content: closing.content ?? 'interrupted',
        role: 'tool',
        ...(call.subagentRunId !== undefined && { subagentRunId: call.subagentRunId }),
      }),
    )
  return [...ends, ...results]
}

/** An end carries its start's owner: the verifier refuses to let anybody else end a thing. */
function closerOf({ kind, id, start }: OpenConstruct): AgUiEvent {
  const subagentRunId = 'subagentRunId' in start ? start.subagentRunId : undefined
  const owner = subagentRunId === undefined ? {} : { subagentRunId }
  switch (kind) {
    case 'text':
      return { type: EventType.TEXT_MESSAGE_END, messageId: id, ...owner }
    case 'tool':
      return { type: EventType.TOOL_CALL_END, toolCallId: id, ...owner }
    case 'reasoning':
      return { type: EventType.REASONING_END, messageId: id, ...owner }
    case 'reasoning_message':
      return { type: EventType.REASONING_MESSAGE_END, messageId: id, ...owner }
    case 'step':
      return { type: EventType.STEP_FINISHED, stepName: id, ...owner }
    case 'subagent':
      return {
        type: EventType.SUBAGENT_ERROR,
        subagentRunId: id,
        message: 'interrupted',
        code: 'interrupted',
      }
    default:
      return assertNever(kind)
  }
}
