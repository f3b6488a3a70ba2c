import { expect, test } from 'vitest'
import type { ChatMessage } from './chat-messages.ts'
import { fitContext, textTokens } from './fit-context.ts'

const user = (content: string): ChatMessage => ({ role: 'user', content })
const says = (content: string): ChatMessage => ({ role: 'assistant', content })
const SYSTEM: ChatMessage = { role: 'system', content: 'Be brief.' }
const CALL: ChatMessage = {
  role: 'assistant',
  content: null,
  tool_calls: [{ id: 'c1', type: 'function', function: { name: 'now', arguments: '{}' } }],
}
const RESULT: ChatMessage = { role: 'tool', tool_call_id: 'c1', content: 'noon' }
const WORDS = 'word '.repeat(200)

test('a conversation that fits is left as it is', () => {
  const all = [SYSTEM, user('a'), CALL, RESULT, says('b'), user('c')]
  expect(fitContext(all, 10_000)).toEqual(all)
})

test('the oldest turns go first, and whole: a call is never parted from its result', () => {
  const all = [SYSTEM, user(WORDS), CALL, RESULT, says('b'), user('c'), says('d'), user('e')]
  expect(fitContext(all, 200)).toEqual([SYSTEM, user('c'), says('d'), user('e')])
})

test('no turn is kept behind one that was left out', () => {
  const all = [user('a'), user(WORDS), user('b'), user('c')]
  expect(fitContext(all, 100)).toEqual([user('b'), user('c')])
})

test('what the operator said and the turn that is to be answered stay, however long they are', () => {
  const now = [user(WORDS), CALL, RESULT]
  expect(fitContext([SYSTEM, user('a'), says('b'), ...now], 1)).toEqual([SYSTEM, ...now])
  expect(fitContext([user('a'), ...now], 400)).toEqual([user('a'), ...now])
  expect(fitContext([user('a'), ...now], 400, 100)).toEqual(now)
})

test('tokens are estimated rather too high than too low', () => {
  // What o200k_base counts: 9, 6 and 4.
  expect(textTokens('The quick brown fox jumps over the lazy dog')).toBeGreaterThanOrEqual(9)
  expect(textTokens('日本語のテキスト')).toBeGreaterThanOrEqual(6)
  expect(textTokens('Grüße')).toBeGreaterThanOrEqual(3)
  expect(textTokens('')).toBe(0)
})
