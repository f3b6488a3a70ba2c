import { EventType } from '@ag-ui/core'
import { applyToMessages } from './apply-message.ts'
import { type Draft, draftOf } from './draft.ts'
import type { AgUiEvent, Message } from './event.ts'
import { patched } from './json-patch.ts'
import { endsRun, type OpenConstruct, openAfter } from './open-constructs.ts'

/**
 * What a log amounts to. JSON-serialisable: it is saved and read back. `state` is absent as long
 * as there is none; `terminal` is the log's last event once the run has ended.
 */
export type Fold = {
  messages: Message[]
  state?: unknown
  /** In order of opening. */
  open: OpenConstruct[]
  terminal: AgUiEvent | null
}

export function emptyFold(): Fold {
  return { messages: [], open: [], terminal: null }
}

/**
 * The fold of `base` and then `events`: messages and state exactly as AG-UI's own client would
 * hold them. Changes neither argument; costs the messages once and then O(1) a delta, so events
 * are best given many at a time.
 */
export function foldEvents(base: Fold, events: readonly AgUiEvent[]): Fold {
  const draft = draftOf(base.messages)
  let { state, open, terminal } = base
  for (const event of events) {
    state = stateAfter(state, event)
    applyToMessages(draft, event)
    open = openAfter(open, event)
    if (event.type === EventType.RUN_STARTED) terminal = null
    else if (endsRun(event)) terminal = event
  }
  return finished(draft, state, open, terminal)
}

export type UnansweredCall = {
  toolCallId: string
  name: string
  /** The assistant message that holds the call, and whose it is. */
  messageId: string
  subagentRunId?: string
}

/** The tool calls that no tool message answers, in order; `earlier` ones are not among the messages. */
export function unansweredToolCalls(
  fold: Pick<Fold, 'messages'>,
  earlier: readonly UnansweredCall[] = [],
): UnansweredCall[] {
  const answered = new Set<string>()
  for (const message of fold.messages) {
    if (message.role === 'tool') answered.add(message.toolCallId)
  }
  const own = fold.messages.flatMap((message) => {
    if (message.role !== 'assistant') return []
    const owner =
      message.subagentRunId === undefined ? {} : { subagentRunId: message.subagentRunId }
    return (message.toolCalls ?? [])
      .filter((call) => !answered.has(call.id))
      .map((call) => ({
        toolCallId: call.id,
        name: call.function.name,
        messageId: message.id,
        ...owner,
      }))
  })
  return [...earlier.filter((call) => !answered.has(call.toolCallId)), ...own]
}

/** A delta before any snapshot patches `{}`, the state that AG-UI's client begins with. */
function stateAfter(state: unknown, event: AgUiEvent): unknown {
  if (event.type === EventType.STATE_SNAPSHOT) return event.snapshot
  if (event.type !== EventType.STATE_DELTA) return state
  const result = patched(state === undefined ? {} : state, event.delta)
  return result.ok ? result.document : state
}

function finished(
  draft: Draft,
  state: unknown,
  open: OpenConstruct[],
  terminal: AgUiEvent | null,
): Fold {
  const fold: Fold = { messages: draft.messages, open, terminal }
  if (state !== undefined) fold.state = state
  return fold
}
