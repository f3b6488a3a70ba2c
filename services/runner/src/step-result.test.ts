import { LIMITS } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { AgentFailure } from './agents/agent.ts'
import { idempotencyKeyOf } from './step-records.ts'
import { parsed, reasonOf, recorded, serialised } from './step-result.ts'

const RUN = '01900000-0000-7000-8000-000000000000'

test('a step is known by its run and its key, in characters that a header takes', () => {
  expect(idempotencyKeyOf(RUN, 'charge')).toBe(`${RUN}:charge`)
  expect(idempotencyKeyOf(RUN, 'Zahlung 5 €\n')).toMatch(/^[\x21-\x7e]{1,240}$/)
  expect(idempotencyKeyOf(RUN, 'a b')).not.toBe(idempotencyKeyOf(RUN, 'a%20b'))
})

test.each(['', 'x'.repeat(201), '€'.repeat(50), '\ud800'])('the key %j is refused', (key) => {
  expect(() => idempotencyKeyOf(RUN, key)).toThrow(AgentFailure)
})

test.each([{ a: [1, null] }, 'text', null, false, 0])('%j comes back as it was', (value) => {
  expect(parsed(serialised('s', value) as string)).toEqual(value)
})

test('nothing stays nothing, and what JSON changes is changed for the first attempt too', () => {
  expect(serialised('s', undefined)).toBeNull()
  expect(parsed(null)).toBeUndefined()
  expect(parsed(serialised('s', { at: new Date(0) }) as string)).toEqual({
    at: '1970-01-01T00:00:00.000Z',
  })
})

test('what cannot be kept is a failure that says why', () => {
  const large = serialised('s', 'x'.repeat(LIMITS.stepBytesMax))
  expect(large).toMatchObject({
    code: 'limit_exceeded',
    message: expect.stringContaining('at most 1048576'),
  })
  expect(serialised('s', 1n)).toMatchObject({ code: 'agent_error' })
})

test('a recorded failure is thrown again with its code, and never becomes a result', () => {
  const result = reasonOf(new AgentFailure('upstream_error', 'x'.repeat(5000)))
  expect(result.length).toBeLessThan(3000)
  const again = () => recorded('s', { kind: 'recorded', outcome: 'failed', result })
  expect(again).toThrow(expect.objectContaining({ code: 'upstream_error' }))
  const undone = () => recorded('s', { kind: 'recorded', outcome: 'compensated', result: '1' })
  expect(undone).toThrow(/undone by an earlier attempt/)
  expect(recorded('s', { kind: 'recorded', outcome: 'done', result: '{"a":1}' })).toEqual({ a: 1 })
})
