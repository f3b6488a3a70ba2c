import { expect, test } from 'vitest'
import { retryDelayMs } from './retry-schedule.ts'

const HOUR = 3_600_000

test('the first retry comes within ten seconds, whatever the jitter', () => {
  for (const random of [0, 0.5, 0.999]) {
    const delayMs = retryDelayMs(1, undefined, () => random)
    expect(delayMs).toBeGreaterThanOrEqual(4000)
    expect(delayMs).toBeLessThan(8000)
  }
})

test('each delay is longer than the one before, and after eleven attempts there is none', () => {
  const delays = Array.from({ length: 11 }, (_, at) => retryDelayMs(at + 1, undefined, () => 0.5))
  expect(delays.at(-1)).toBeNull()
  const some = delays.flatMap((delay) => delay ?? [])
  expect(some).toEqual([...some].sort((a, b) => a - b))
  const totalMs = some.reduce((sum, delay) => sum + delay, 0)
  expect(totalMs).toBeGreaterThan(48 * HOUR)
  expect(totalMs).toBeLessThan(72 * HOUR)
})

test.each([
  ['a wish is granted', 1, 60_000, 60_000],
  ['a wish to come sooner is not', 3, 1000, 120_000],
  ['a wish of a month is granted an hour', 1, 2_592_001_000, HOUR],
])('%s', (_name, step, retryAfterMs, expected) => {
  expect(retryDelayMs(step, retryAfterMs, () => 0.5)).toBe(expected)
})

test('a receiver that asks for more time gets no more attempts', () => {
  expect(retryDelayMs(11, 60_000)).toBeNull()
})
