import type { Message } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { end, eventsOf, HISTORY, start, text } from './testing/normalise.ts'

const snapshot = (messages: Message[]) => ({ type: 'MESSAGES_SNAPSHOT', messages })

test('a snapshot that only repeats history and answer is left out', () => {
  const said = [start('a'), text('a', 'x'), end('a')]
  const same: Message[] = [...HISTORY, { id: 'a', role: 'assistant', content: 'x' }]
  expect(eventsOf([...said, snapshot(same)], { history: HISTORY })).toEqual(said)
  const renamed = same.map((message, index) => ({ ...message, id: `other${index}` }))
  expect(eventsOf([...said, snapshot(renamed)], { history: HISTORY })).toEqual(said)
})

test('a snapshot changes and adds messages of this run, and never the history', () => {
  const events = eventsOf(
    [
      start('a'),
      text('a', 'draft'),
      end('a'),
      snapshot([
        { id: 'sys', role: 'system', content: 'be good' },
        { id: 'u1', role: 'user', content: 'REWRITTEN' },
        { id: 'm1', role: 'assistant', content: 'REWRITTEN' },
        { id: 'u2', role: 'user', content: 'and now?' },
        { id: 'a', role: 'assistant', content: 'final' },
        {
          id: 'b',
          role: 'assistant',
          toolCalls: [{ id: 't', type: 'function', function: { name: 'look', arguments: '{}' } }],
        },
        { id: 'c', role: 'tool', toolCallId: 't', content: 'found' },
      ]),
    ],
    { history: HISTORY },
  )
  expect(events.at(-1)).toMatchObject({
    messages: [
      ...HISTORY,
      { id: 'a', content: 'final' },
      { id: 'b', toolCalls: [{ id: 't' }] },
      { id: 'c', toolCallId: 't' },
    ],
  })
})

test('a snapshot finds a message whose id had to be replaced', () => {
  const events = eventsOf(
    [
      start('m1'),
      text('m1', 'draft'),
      end('m1'),
      snapshot([...HISTORY, { id: 'm1', role: 'assistant', content: 'final' }]),
    ],
    { history: HISTORY },
  )
  expect(events.at(-1)).toMatchObject({
    messages: [...HISTORY, { id: 'run.1.m1', role: 'assistant', content: 'final' }],
  })
})

test('a snapshot neither omits nor contradicts a message that is open', () => {
  const open = [start('a'), text('a', 'so far')]
  expect(eventsOf([...open, snapshot([])])).toEqual(open)
  const other: Message[] = [
    { id: 'a', role: 'assistant', content: 'other' },
    { id: 'b', role: 'assistant', content: 'new' },
  ]
  expect(eventsOf([...open, snapshot(other), text('a', '!')]).slice(2)).toMatchObject([
    { messages: [{ id: 'a', content: 'so far' }, { id: 'b' }] },
    { delta: '!' },
  ])
})

test('a history that the upstream got with bytes is found again, and none of them comes back', () => {
  const seen = (source: object) =>
    [
      { id: 'u1', role: 'user', content: [{ type: 'image', source }] },
      { id: 'r1', role: 'tool', toolCallId: 't', content: [{ type: 'image', source }] },
      { id: 'u2', role: 'user', content: [{ type: 'document', source }] },
    ] as Message[]
  const history = seen({ type: 'url', value: '/conversations/c/attachments/a' })
  const messages = seen({ type: 'data', value: 'AAAA', mimeType: 'image/png' })
  const renamed = messages.map((message) => ({ ...message, id: `their ${message.id}` }))
  const answer: Message = { id: 'a', role: 'assistant', content: 'final' }
  for (const sent of [messages, renamed, renamed.slice(0, 2)]) {
    const events = eventsOf([snapshot([...sent, answer])], { history, messages })
    expect(events).toEqual([{ ...snapshot([...history, answer]), messages: [...history, answer] }])
  }
})
