import { getEventListeners } from 'node:events'
import { expect, test, vi } from 'vitest'
import { unlessAborted, wait, within } from './wait.ts'

test('a wait beyond 2^31 ms does not end at once', async () => {
  vi.useFakeTimers()
  try {
    let ended = false
    const waiting = wait(2 ** 31 + 5000).then(() => {
      ended = true
    })
    await vi.advanceTimersByTimeAsync(2 ** 31)
    expect(ended).toBe(false)
    await vi.advanceTimersByTimeAsync(5001)
    await waiting
    expect(ended).toBe(true)
  } finally {
    vi.useRealTimers()
  }
})

test('an aborted wait rejects with the reason of the signal', async () => {
  const controller = new AbortController()
  const reason = new Error('enough')
  const waiting = wait(60_000, controller.signal)
  controller.abort(reason)
  await expect(waiting).rejects.toBe(reason)
  await expect(wait(1, controller.signal)).rejects.toBe(reason)
})

test('10,000 waits on one signal leave no listener behind', async () => {
  const { signal } = new AbortController()
  for (let n = 0; n < 10_000; n += 100) {
    await Promise.all(Array.from({ length: 100 }, () => wait(0, signal)))
    await Promise.all(Array.from({ length: 100 }, () => unlessAborted(Promise.resolve(), signal)))
  }
  expect(getEventListeners(signal, 'abort')).toHaveLength(0)
})

test('within gives up in time, and a late rejection is nobody’s', async () => {
  const { promise, reject } = Promise.withResolvers<number>()
  expect(await within(5, promise)).toBeUndefined()
  reject(new Error('late'))
  expect(await within(1000, Promise.resolve(7))).toBe(7)
})
