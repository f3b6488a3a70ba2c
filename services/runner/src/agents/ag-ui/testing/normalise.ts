import type { AgUiEvent, Message } from '@holdfast/protocol'
import { pino } from 'pino'
import { createEventNormaliser } from '../normalise-events.ts'

export const HISTORY: Message[] = [
  { id: 'u1', role: 'user', content: 'hello' },
  { id: 'm1', role: 'assistant', content: 'Hello!' },
  { id: 'u2', role: 'user', content: 'and now?' },
]

export function normaliser(
  given: { history?: Message[]; messages?: Message[]; usedIds?: string[]; epoch?: number } = {},
) {
  const { history = [], messages = history, usedIds = [], epoch = 1 } = given
  return createEventNormaliser({
    runId: 'run',
    epoch,
    usedIds: new Set(usedIds),
    history,
    messages,
    log: pino({ level: 'silent' }),
  })
}

export function normalise(values: unknown[], given: Parameters<typeof normaliser>[0] = {}) {
  const { push } = normaliser(given)
  const results = values.map((value) => push(value))
  return {
    events: results.flatMap((result) => result.events),
    ending: results.find((result) => result.ending)?.ending,
  }
}

export const eventsOf = (
  values: unknown[],
  given: Parameters<typeof normaliser>[0] = {},
): AgUiEvent[] => normalise(values, given).events

export const start = (messageId: string, more: object = {}) => ({
  type: 'TEXT_MESSAGE_START',
  messageId,
  role: 'assistant',
  ...more,
})
export const text = (messageId: string, delta: string, more: object = {}) => ({
  type: 'TEXT_MESSAGE_CONTENT',
  messageId,
  delta,
  ...more,
})
export const end = (messageId: string) => ({ type: 'TEXT_MESSAGE_END', messageId })
export const call = (toolCallId: string, more: object = {}) => ({
  type: 'TOOL_CALL_START',
  toolCallId,
  toolCallName: 'look',
  ...more,
})
export const args = (toolCallId: string, delta: string) => ({
  type: 'TOOL_CALL_ARGS',
  toolCallId,
  delta,
})
export const callEnd = (toolCallId: string) => ({ type: 'TOOL_CALL_END', toolCallId })
export const result = (toolCallId: string, messageId: string) => ({
  type: 'TOOL_CALL_RESULT',
  messageId,
  toolCallId,
  content: 'found',
  role: 'tool',
})
export const finished = { type: 'RUN_FINISHED', threadId: 't', runId: 'r' }
