import { describe, expect, test } from 'vitest'
import type { EventStream } from './event-stream.ts'
import type { Batch, Follower } from './run-hub.ts'
import { sendLog } from './subscription.ts'

/** A stream that keeps what was written, and a follower that gives the batches it was told. */
function pipe(batches: Batch[], options: { takes?: number } = {}) {
  const written: string[] = []
  const over = new AbortController()
  const asked: number[] = []
  const stream: EventStream = {
    signal: over.signal,
    async write(frames) {
      if (written.length >= (options.takes ?? Number.POSITIVE_INFINITY)) return false
      written.push(frames)
      return true
    },
  }
  const follower: Follower = {
    async next(after, waitMs, signal) {
      asked.push(after)
      const batch = batches.shift()
      if (batch) return batch
      return new Promise((resolve) => {
        const idle = () => resolve({ kind: 'idle' })
        const timer = setTimeout(idle, waitMs)
        signal.addEventListener('abort', () => {
          clearTimeout(timer)
          idle()
        })
      })
    },
    [Symbol.dispose]() {},
  }
  return { stream, follower, written, over, asked }
}

const events = (from: number, to: number, lastType = 'CUSTOM'): Batch => ({
  kind: 'events',
  wokenAtMs: undefined,
  events: Array.from({ length: to - from + 1 }, (_, k) => ({
    sequence: from + k,
    type: from + k === to ? lastType : 'CUSTOM',
    json: `{"n":${from + k}}`,
  })),
})
const subscription = {
  after: 0,
  timing: { heartbeatMs: 60_000, maxAgeMs: 60_000 },
  stillAllowed: async () => true,
  delivered: () => {},
}
const ids = (text: string) => [...text.matchAll(/^id: (\d+)$/gm)].map((match) => Number(match[1]))

test('a stream ends right after the terminal event, and says nothing more', async () => {
  const { stream, follower, written } = pipe([events(1, 2), events(3, 4, 'RUN_ERROR')])
  await sendLog(stream, follower, subscription)
  expect(ids(written.join(''))).toEqual([1, 2, 3, 4])
  expect(written.join('')).toMatch(/id: 4\ndata: {"n":4}\n\n$/)
})

test('what the client has already is not sent again', async () => {
  const { stream, follower, written, asked } = pipe([events(4, 8), events(8, 9, 'RUN_FINISHED')])
  await sendLog(stream, follower, { ...subscription, after: 6 })
  expect(ids(written.join(''))).toEqual([7, 8, 9])
  expect(asked).toEqual([6, 8])
})

test('one batch is one write', async () => {
  const { stream, follower, written } = pipe([events(1, 50, 'RUN_FINISHED')])
  await sendLog(stream, follower, subscription)
  expect(written).toHaveLength(1)
})

describe('every other end has a retry and no terminal event', () => {
  test('the drain of the process', async () => {
    const { stream, follower, written, over } = pipe([events(1, 1)])
    const sending = sendLog(stream, follower, subscription)
    over.abort()
    await sending
    expect(written.at(-1)).toMatch(/^retry: \d+\n\n$/)
  })

  test('the age of the connection, also while nothing happens', async () => {
    const { stream, follower, written } = pipe([])
    await sendLog(stream, follower, {
      ...subscription,
      timing: { heartbeatMs: 60_000, maxAgeMs: 20 },
    })
    expect(written).toHaveLength(1)
    expect(written[0]).toMatch(/^retry: \d+\n\n$/)
  })

  test('a log that was pruned under it', async () => {
    const { stream, follower, written } = pipe([events(1, 1), { kind: 'gone', floor: 9 }])
    await sendLog(stream, follower, subscription)
    expect(written.at(-1)).toMatch(/^retry: \d+\n\n$/)
  })
})

describe('a heartbeat', () => {
  const timing = { heartbeatMs: 5, maxAgeMs: 60_000 }

  test('is a comment that moves no cursor, while the subscription is allowed', async () => {
    const { stream, follower, written } = pipe([])
    let asked = 0
    const stillAllowed = async () => (asked += 1) <= 3
    await sendLog(stream, follower, { ...subscription, timing, stillAllowed })
    expect(written).toHaveLength(3)
    for (const beat of written) expect(beat).toMatch(/^:.*\n\n$/)
  })

  test('is due on a busy stream too', async () => {
    const batches = Array.from({ length: 10_000 }, (_, k) => events(k + 1, k + 1))
    const { stream, follower, written } = pipe(batches)
    const slow: EventStream = {
      ...stream,
      write: async (frames) => {
        await new Promise((resolve) => setTimeout(resolve, 1))
        return stream.write(frames)
      },
    }
    await sendLog(slow, follower, { ...subscription, timing, stillAllowed: async () => false })
    expect(written.length).toBeLessThan(1000)
  })
})

test('a reader that is gone ends it at the next write', async () => {
  const { stream, follower, written, asked } = pipe([events(1, 1), events(2, 2), events(3, 3)], {
    takes: 1,
  })
  await sendLog(stream, follower, subscription)
  expect(written).toHaveLength(1)
  expect(asked).toEqual([0, 1])
})

test('how long delivery took is told for what came while waiting', async () => {
  const told: number[] = []
  const fresh = { ...events(1, 1, 'RUN_FINISHED'), wokenAtMs: performance.now() - 50 } as Batch
  const { stream, follower } = pipe([fresh])
  await sendLog(stream, follower, { ...subscription, delivered: (ms) => told.push(ms) })
  expect(told).toHaveLength(1)
  expect(told[0]).toBeGreaterThanOrEqual(50)
})
