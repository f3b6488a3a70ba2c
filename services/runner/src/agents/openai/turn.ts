import { TokenUsageSchema } from '@ag-ui/core/schemas'
import { type AgUiEvent, EventType, type TokenUsage } from '@holdfast/protocol'
import * as z from 'zod'
import type { AgentRun } from '../agent.ts'
import type { RunIds } from '../run-ids.ts'
import { assistantMessage, type ChatMessage } from './chat-messages.ts'

const MadeCall = z.object({
  id: z.string(),
  name: z.string(),
  arguments: z.string(),
  /** What the tool answered; undefined while it is not known. */
  result: z.string().optional(),
})

const Round = z.object({
  messageId: z.string(),
  text: z.string(),
  calls: z.array(MadeCall),
  finishReason: z.string(),
})

/** What was said and done in this turn so far: what a checkpoint keeps. */
export const Turn = z.object({
  /** Calls of earlier turns that this one answers. */
  earlier: z.array(MadeCall),
  rounds: z.array(Round),
  usage: z.array(z.custom<TokenUsage>((usage) => TokenUsageSchema.safeParse(usage).success)),
})

export type MadeCall = z.infer<typeof MadeCall>
export type Round = z.infer<typeof Round>
export type Turn = z.infer<typeof Turn>

/** A turn of which nothing is known but what it was left to do. */
export function newTurn({ openCalls, messages }: Pick<AgentRun, 'openCalls' | 'messages'>): Turn {
  const made = messages.flatMap((message) =>
    message.role === 'assistant' ? (message.toolCalls ?? []) : [],
  )
  const earlier = openCalls.map(({ toolCallId: id, name }) => {
    const call = made.find((one) => one.id === id)
    return { id, name, arguments: call?.function.arguments ?? '' }
  })
  return { earlier, rounds: [], usage: [] }
}

/** Nobody knows what a model that was cut off would have gone on to ask for. */
export function isCut({ finishReason }: Round): boolean {
  return finishReason === 'length' || finishReason === 'content_filter'
}

/** The turn's own part of the conversation, as the model has to get it back. */
export function roundMessages({ rounds }: Turn): ChatMessage[] {
  return rounds.flatMap(({ text, calls }) => [
    ...assistantMessage(
      text,
      calls.map((call) => ({ id: call.id, function: withValidArguments(call) })),
    ),
    ...calls.flatMap(({ id, result }): ChatMessage[] =>
      result === undefined ? [] : [{ role: 'tool', tool_call_id: id, content: result }],
    ),
  ])
}

/** The turn under ids that are free, and the events that say it again after a lost attempt's were withdrawn. */
export function saidAgain(turn: Turn, ids: RunIds): { turn: Turn; events: AgUiEvent[] } {
  const rounds = turn.rounds.map((round) => ({
    ...round,
    messageId: ids.message(''),
    calls: round.calls.map((call) => ({ ...call, id: ids.call('') })),
  }))
  const events = [
    ...turn.earlier.flatMap((call) => resultEvents(call, ids)),
    ...rounds.flatMap((round) => roundEvents(round, ids)),
  ]
  return { turn: { ...turn, rounds }, events }
}

export function resultEvent(call: MadeCall, content: string, ids: RunIds): AgUiEvent {
  return {
    type: EventType.TOOL_CALL_RESULT,
    messageId: ids.message(''),
    toolCallId: call.id,
    content,
    role: 'tool',
  }
}

function resultEvents(call: MadeCall, ids: RunIds): AgUiEvent[] {
  return call.result === undefined ? [] : [resultEvent(call, call.result, ids)]
}

function roundEvents({ messageId, text, calls }: Round, ids: RunIds): AgUiEvent[] {
  const events: AgUiEvent[] = []
  if (text !== '') {
    events.push(
      { type: EventType.TEXT_MESSAGE_START, messageId, role: 'assistant' },
      { type: EventType.TEXT_MESSAGE_CONTENT, messageId, delta: text },
      { type: EventType.TEXT_MESSAGE_END, messageId },
    )
  }
  for (const call of calls) {
    const { id: toolCallId, name: toolCallName, arguments: delta } = call
    events.push(
      { type: EventType.TOOL_CALL_START, toolCallId, toolCallName, parentMessageId: messageId },
      { type: EventType.TOOL_CALL_ARGS, toolCallId, delta },
      { type: EventType.TOOL_CALL_END, toolCallId },
    )
    events.push(...resultEvents(call, ids))
  }
  return events
}

/** No provider takes back arguments that are not JSON, though it sent them. */
function withValidArguments({ name, arguments: given }: MadeCall): {
  name: string
  arguments: string
} {
  try {
    JSON.parse(given)
    return { name, arguments: given }
  } catch {
    return { name, arguments: '{}' }
  }
}
