import { expect, test } from 'vitest'
import { appendTo, emptyWindow, sliceOf } from './event-window.ts'

const LIMITS = { eventsMax: 5, bytesMax: 1000 }
const events = (from: number, to: number, json = '{}') =>
  Array.from({ length: to - from + 1 }, (_, k) => ({ sequence: from + k, type: 'CUSTOM', json }))
const sequences = (slice: { sequence: number }[] | undefined) => slice?.map((e) => e.sequence)

test('a slice begins right behind the cursor', () => {
  const window = emptyWindow(10)
  appendTo(window, events(11, 14), LIMITS)
  expect(sequences(sliceOf(window, 10))).toEqual([11, 12, 13, 14])
  expect(sequences(sliceOf(window, 13))).toEqual([14])
  expect(sliceOf(window, 14)).toBeUndefined()
})

test('the oldest events go, and readers behind them are not served from here', () => {
  const window = emptyWindow(0)
  appendTo(window, events(1, 8), LIMITS)
  expect(window).toMatchObject({ floor: 3, cursor: 8 })
  expect(sliceOf(window, 2)).toBeUndefined()
  expect(sequences(sliceOf(window, 3))).toEqual([4, 5, 6, 7, 8])
})

test('bytes are bounded too, but the newest event always stays', () => {
  const window = emptyWindow(0)
  appendTo(window, events(1, 3, 'x'.repeat(600)), LIMITS)
  expect(window).toMatchObject({ floor: 2, cursor: 3, bytes: 600 })
  appendTo(window, events(4, 4, 'x'.repeat(5000)), LIMITS)
  expect(sequences(sliceOf(window, 3))).toEqual([4])
})

test('a hole left by pruning starts the window anew behind it', () => {
  const window = emptyWindow(0)
  appendTo(window, events(1, 2), LIMITS)
  appendTo(window, events(7, 8), LIMITS)
  expect(window).toMatchObject({ floor: 6, cursor: 8 })
  expect(sliceOf(window, 1)).toBeUndefined()
  expect(sequences(sliceOf(window, 6))).toEqual([7, 8])
})

test('one slice is not more than one socket write', () => {
  const window = emptyWindow(0)
  appendTo(window, events(1, 10, 'x'.repeat(30_000)), { eventsMax: 100, bytesMax: 1 << 20 })
  expect(sequences(sliceOf(window, 0))).toEqual([1, 2, 3])
})

test('the terminal event ends the window', () => {
  const window = emptyWindow(0)
  appendTo(window, [{ sequence: 1, type: 'RUN_FINISHED', json: '{}' }], LIMITS)
  expect(window.ended).toBe(true)
})
