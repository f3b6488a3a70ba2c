import { EventType } from '@ag-ui/core'
import type { AgUiEvent, Message, RunAgentInput } from './event.ts'
import type { OpenConstruct } from './open-constructs.ts'

export type Prelude = {
  threadId: string
  runId: string
  input?: RunAgentInput
  /** Whole turns up to this run's, the answer so far included. */
  messages: Message[]
  /** `undefined`: there is none, and no snapshot of it is sent. */
  state: unknown
  open: readonly OpenConstruct[]
  /** The run's last event, if it has ended. */
  terminal: AgUiEvent | null
}

/** Events that put a fresh reader where the log is, so that the rest of the log fits behind them. */
export function preludeEvents(prelude: Prelude): AgUiEvent[] {
  const { threadId, runId, input, messages, state, open, terminal } = prelude
  const snapshots: AgUiEvent[] = [{ type: EventType.MESSAGES_SNAPSHOT, messages }]
  if (state !== undefined) snapshots.unshift({ type: EventType.STATE_SNAPSHOT, snapshot: state })
  return [
    {
      type: EventType.RUN_STARTED,
      threadId,
      runId,
      // A client puts a snapshot's messages behind those it has: the input's would come first.
      ...(input && { input: { ...input, messages: [] } }),
    },
    ...snapshots,
    ...(terminal ? [terminal] : open.map((construct) => reopened(construct, prelude))),
  ]
}

/**
 * The start again, for a reader whose snapshot holds what it built so far. Metadata stays out
 * where the message or call has it already: the first would overwrite what came later. A parent
 * that has ended is unknown to the reader, and naming it would be refused.
 */
function reopened({ kind, start }: OpenConstruct, { open, messages }: Prelude): AgUiEvent {
  if (start.type === EventType.SUBAGENT_STARTED) {
    const parent = start.parentSubagentRunId
    if (parent === undefined || open.some((one) => one.kind === 'subagent' && one.id === parent)) {
      return start
    }
    const { parentSubagentRunId: _, ...orphan } = start
    return orphan
  }
  if (kind === 'step' || kind === 'reasoning') return start
  const { metadata: _, ...bare } = start
  if (bare.type !== EventType.TOOL_CALL_START || bare.parentMessageId === undefined) return bare
  return { ...bare, parentMessageId: holderOf(bare.toolCallId, messages) ?? bare.parentMessageId }
}

/**
 * The message that holds the call. It is not the parent that was named where that turned out to
 * be no assistant's, and the verifier wants the call's owner and its parent's to be the same.
 */
function holderOf(toolCallId: string, messages: readonly Message[]): string | undefined {
  const holder = messages.findLast(
    (message) =>
      message.role === 'assistant' && message.toolCalls?.some((call) => call.id === toolCallId),
  )
  return holder?.id
}
