import type { AssistantMessage, ToolCall } from '@ag-ui/core'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import type { Message } from './event.ts'
import { foldEvents } from './fold.ts'
import { agentHistory, type HistoryOptions, type MessageStatus } from './history.ts'
import { foldBefore, randomLog } from './testing/random-log.ts'

function user(id: string): Message {
  return { id, role: 'user', content: id }
}

function call(id: string, args = '{}'): ToolCall {
  return { id, type: 'function', function: { name: 'look', arguments: args } }
}

function all(...partial: string[]): HistoryOptions {
  return { history: 'all', statuses: new Map(partial.map((id) => [id, 'partial' as const])) }
}

function complete(...partial: string[]): HistoryOptions {
  return { ...all(...partial), history: 'complete' }
}

/** What providers insist on. */
function expectValid(messages: readonly Message[]) {
  let waiting: string[] = []
  for (const message of messages) {
    if (message.role === 'tool') {
      expect(waiting).toContain(message.toolCallId)
      waiting = waiting.filter((id) => id !== message.toolCallId)
      continue
    }
    expect(waiting).toEqual([])
    expect(message.role).not.toBe('activity')
    if (message.role !== 'assistant') continue
    waiting = (message.toolCalls ?? []).map((one) => one.id)
    for (const one of message.toolCalls ?? []) JSON.parse(one.function.arguments)
  }
  expect(waiting).toEqual([])
}

test('every history is valid for a model, and every user message enters', () => {
  fc.assert(
    fc.property(randomLog(), fc.boolean(), fc.infiniteStream(fc.boolean()), (log, keep, coins) => {
      const { messages } = foldEvents(foldBefore(log), log.events)
      const statuses = new Map<string, MessageStatus>()
      for (const message of messages) {
        statuses.set(message.id, coins.next().value ? 'partial' : 'complete')
      }
      const history = agentHistory(messages, { history: keep ? 'all' : 'complete', statuses })
      expectValid(history)
      const users = (list: readonly Message[]) => list.filter((one) => one.role === 'user')
      expect(users(history)).toEqual(users(messages))
    }),
    { seed: 8, numRuns: 300 },
  )
})

test('an interrupted answer keeps its text and says so once; complete mode leaves it out', () => {
  const messages: Message[] = [
    user('u1'),
    { id: 'a1', role: 'assistant', content: 'let me', toolCalls: [call('c1', '{"q":"x')] },
    { id: 't1', role: 'tool', toolCallId: 'c1', content: 'interrupted' },
    { id: 'a2', role: 'assistant', content: 'half an' },
    user('u2'),
  ]
  expect(agentHistory(messages, all('a1', 't1', 'a2'))).toEqual([
    user('u1'),
    { id: 'a1', role: 'assistant', content: 'let me', toolCalls: [call('c1')] },
    { id: 't1', role: 'tool', toolCallId: 'c1', content: 'interrupted' },
    { id: 'a2', role: 'assistant', content: 'half an\n\n[This answer was interrupted.]' },
    user('u2'),
  ])
  expect(agentHistory(messages, complete('a1', 't1', 'a2'))).toEqual([user('u1'), user('u2')])
})

test('a call without a result gets one with an id that is always the same', () => {
  const asking: AssistantMessage = { id: 'a1', role: 'assistant', toolCalls: [call('c1')] }
  const expected = [
    asking,
    { id: 'c1:interrupted', role: 'tool', toolCallId: 'c1', content: 'interrupted' },
    user('u1'),
  ]
  expect(agentHistory([asking, user('u1')], all())).toEqual(expected)
  expect(agentHistory([asking, user('u1')], all())).toEqual(expected)
})

test('results stand behind their calls, and one without a call does not enter', () => {
  const messages: Message[] = [
    { id: 'a1', role: 'assistant', toolCalls: [call('c1'), call('c2')] },
    { id: 't2', role: 'tool', toolCallId: 'c2', content: 'two' },
    { id: 'a2', role: 'assistant', content: 'then' },
    { id: 't1', role: 'tool', toolCallId: 'c1', content: 'one' },
    { id: 't3', role: 'tool', toolCallId: 'nobody', content: 'three' },
  ]
  expect(agentHistory(messages, all()).map((message) => message.id)).toEqual([
    'a1',
    't1',
    't2',
    'a2',
  ])
})

test('activity, emptied reasoning and empty answers do not enter', () => {
  const messages: Message[] = [
    { id: 'v', role: 'activity', activityType: 'plan', content: {} },
    { id: 'r1', role: 'reasoning', content: '' },
    { id: 'r2', role: 'reasoning', content: 'hm' },
    { id: 'r3', role: 'reasoning', content: '', encryptedValue: 'x' },
    { id: 'a1', role: 'assistant', content: '' },
    { id: 'a2', role: 'assistant', toolCalls: [] },
  ]
  expect(agentHistory(messages, all()).map((message) => message.id)).toEqual(['r2', 'r3'])
})

test('a call that was answered twice enters with its first result', () => {
  const asking: AssistantMessage = { id: 'a1', role: 'assistant', toolCalls: [call('c1')] }
  const first: Message = { id: 't1', role: 'tool', toolCallId: 'c1', content: 'one' }
  const second: Message = { id: 't2', role: 'tool', toolCallId: 'c1', content: 'two' }
  expect(agentHistory([asking, first, second], all())).toEqual([asking, first])
})
