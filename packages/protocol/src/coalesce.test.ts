import { EventType } from '@ag-ui/core'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { coalesce } from './coalesce.ts'
import type { AgUiEvent, Message } from './event.ts'
import { foldEvents } from './fold.ts'
import { foldBefore, randomLog } from './testing/random-log.ts'

function text(messageId: string, delta: string, more: object = {}): AgUiEvent {
  return { type: EventType.TEXT_MESSAGE_CONTENT, messageId, delta, ...more }
}

function args(toolCallId: string, delta: string): AgUiEvent {
  return { type: EventType.TOOL_CALL_ARGS, toolCallId, delta }
}

/** A message that got only empty deltas has no content instead of an empty one. */
function withContent(message: Message): Message {
  return message.role === 'assistant' ? { ...message, content: message.content ?? '' } : message
}

test('a coalesced log folds to the same, never has more events, and is coalesced once for all', () => {
  fc.assert(
    fc.property(randomLog(), (log) => {
      const before = structuredClone(log.events)
      const merged = coalesce(log.events)
      expect(log.events).toEqual(before)
      const [fold, same] = [log.events, merged].map((events) => foldEvents(foldBefore(log), events))
      expect(same?.messages.map(withContent)).toEqual(fold?.messages.map(withContent))
      expect({ ...same, messages: [] }).toEqual({ ...fold, messages: [] })
      expect(merged.length).toBeLessThanOrEqual(log.events.length)
      expect(coalesce(merged)).toEqual(merged)
    }),
    { seed: 99, numRuns: 300 },
  )
})

test('neighbouring deltas of one thing become one and empty ones go', () => {
  const events = [text('m', 'a'), text('m', ''), text('m', 'b'), args('c', ''), text('m', 'c')]
  expect(coalesce(events)).toEqual([text('m', 'abc')])
})

test('no delta moves past another event, another thing, another owner or metadata', () => {
  const events = [
    text('m', 'a'),
    args('m', 'b'),
    text('m', 'c'),
    { type: EventType.CUSTOM as const, name: 'x', value: 1 },
    text('m', 'd'),
    text('n', 'e'),
    text('m', 'f'),
    text('m', 'g', { subagentRunId: 's' }),
    text('m', '', { metadata: { n: 1 } }),
    text('m', 'h', { metadata: { n: 2 } }),
    text('m', 'i'),
  ]
  expect(coalesce(events)).toEqual(events)
})
