import { expect, test } from 'vitest'
import { CancelQuery, CreateRunBody, ListRunsQuery } from './rest.ts'

const accepts = (body: object) => CreateRunBody.safeParse({ clientTurnId: 't', ...body }).success

test('a message is text or AG-UI content parts, and not nothing', () => {
  expect(accepts({ message: 'hi' })).toBe(true)
  const source = { type: 'url', value: 'https://x/y.png' }
  expect(
    accepts({
      message: [
        { type: 'text', text: 'hi' },
        { type: 'image', source },
      ],
    }),
  ).toBe(true)
  expect(accepts({ message: '' })).toBe(false)
  expect(accepts({ message: [] })).toBe(false)
  expect(accepts({ message: [{ type: 'image' }] })).toBe(false)
  expect(accepts({ message: { text: 'hi' } })).toBe(false)
})

test('a client turn has 1 to 128 characters', () => {
  expect(accepts({ message: 'x', clientTurnId: 't'.repeat(128) })).toBe(true)
  expect(accepts({ message: 'x', clientTurnId: 't'.repeat(129) })).toBe(false)
  expect(accepts({ message: 'x', clientTurnId: '' })).toBe(false)
})

test('an optional field that is null counts as left out', () => {
  const optional = ['conversationId', 'agent', 'onActive', 'notifyUrl', 'deadlineMs', 'context']
  for (const field of optional) expect(accepts({ message: 'x', [field]: null })).toBe(true)
})

test('a deadline is a whole number of milliseconds, up to 30 days', () => {
  expect(accepts({ message: 'x', deadlineMs: 30 * 86_400_000 })).toBe(true)
  expect(accepts({ message: 'x', deadlineMs: 30 * 86_400_000 + 1 })).toBe(false)
  expect(accepts({ message: 'x', deadlineMs: 0 })).toBe(false)
  expect(accepts({ message: 'x', deadlineMs: 1.5 })).toBe(false)
})

test('fields that nobody knows are dropped', () => {
  const body = { message: 'x', clientTurnId: 't', tenantId: 'other' }
  expect(CreateRunBody.parse(body)).toEqual({ message: 'x', clientTurnId: 't' })
})

test('pages have 1 to 100 entries, 20 by default', () => {
  expect(ListRunsQuery.parse({}).limit).toBe(20)
  expect(ListRunsQuery.parse({ limit: '100' }).limit).toBe(100)
  for (const limit of ['0', '101', 'x', '-1', '1.5']) {
    expect(ListRunsQuery.safeParse({ limit }).success).toBe(false)
  }
})

test('a cancel waits at most 30 seconds', () => {
  expect(CancelQuery.parse({ wait: '30' }).wait).toBe(30)
  expect(CancelQuery.safeParse({ wait: '31' }).success).toBe(false)
})
