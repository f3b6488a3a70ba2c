import type { LogEvent } from '@holdfast/store'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { type RunHub, runHub } from './run-hub.ts'
import type { LogReader } from './run-tail.ts'

/** A log in memory behind the hub's two reads, which can be watched and held up. */
function memoryLog() {
  const logs = new Map<string, LogEvent[]>()
  const wakers = new Set<(ids: readonly string[] | null) => void>()
  let beforeTail = () => Promise.resolve()
  const calls = { tail: 0, tailing: 0, tailingMax: 0, pages: 0, follows: 0 }
  const after = (runId: string, cursor: number) =>
    (logs.get(runId) ?? []).filter((event) => event.sequence > cursor)
  const reader: LogReader = {
    async readEvents(runId, cursor, limit) {
      calls.pages += 1
      return { kind: 'events', events: after(runId, cursor).slice(0, limit) }
    },
    async tailRuns(follows, limit) {
      calls.tail += 1
      calls.follows += follows.length
      calls.tailing += 1
      calls.tailingMax = Math.max(calls.tailingMax, calls.tailing)
      const found = follows.map((f) => ({
        runId: f.runId,
        events: after(f.runId, f.after).slice(0, limit),
      }))
      await beforeTail()
      calls.tailing -= 1
      return found.filter(({ events }) => events.length > 0)
    },
  }
  return {
    reader,
    calls,
    holdTail: (hold: () => Promise<void>) => {
      beforeTail = hold
    },
    append(runId: string, count: number, type = 'CUSTOM') {
      const log = logs.get(runId) ?? []
      for (let k = 0; k < count; k += 1) log.push({ sequence: log.length + 1, type, json: '{}' })
      logs.set(runId, log)
    },
    wake: (ids: readonly string[] | null) => {
      for (const waker of wakers) waker(ids)
    },
    wakeups: {
      subscribe(_topic: 'events', onWake: (ids: readonly string[] | null) => void) {
        wakers.add(onWake)
        return () => wakers.delete(onWake)
      },
    },
  }
}

const NEVER = new AbortController().signal
let log: ReturnType<typeof memoryLog>
let hub: RunHub
let errors: Error[]

async function open(options: {
  pollMs?: number
  window?: { eventsMax: number; bytesMax: number }
}) {
  log = memoryLog()
  errors = []
  hub = runHub({
    log: log.reader,
    wakeups: log.wakeups,
    pollMs: 60_000,
    onError: (error) => errors.push(error),
    ...options,
  })
  await hub.start()
}

async function read(follower: ReturnType<RunHub['follow']>, from: number, until: number) {
  const seen: number[] = []
  let last = from
  while (last < until) {
    const batch = await follower.next(last, 5000, NEVER)
    if (batch.kind !== 'events') throw new Error(`got ${batch.kind} after ${last}`)
    for (const event of batch.events) seen.push(event.sequence)
    last = batch.events.at(-1)?.sequence ?? last
  }
  return seen
}

const range = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, k) => from + k)

beforeEach(() => open({}))
afterEach(() => hub.stop())

describe('a follower', () => {
  test('gets what is appended after a wake-up, without a gap', async () => {
    using follower = hub.follow('a', 0)
    const reading = read(follower, 0, 30)
    for (let k = 0; k < 10; k += 1) {
      log.append('a', 3)
      log.wake(['a'])
      await Promise.resolve()
    }
    expect(await reading).toEqual(range(1, 30))
  })

  test('gets what was appended between its look at the head and its subscription', async () => {
    log.append('a', 5)
    using follower = hub.follow('a', 3)
    expect(await read(follower, 3, 5)).toEqual([4, 5])
  })

  test('is served by the safety look when no wake-up ever comes', async () => {
    await hub.stop()
    await open({ pollMs: 20 })
    using follower = hub.follow('a', 0)
    expect(await follower.next(0, 50, NEVER)).toEqual({ kind: 'idle' })
    log.append('a', 2)
    expect(await read(follower, 0, 2)).toEqual([1, 2])
  })

  test('is not left behind by a wake-up that comes during the read it causes', async () => {
    using follower = hub.follow('a', 0)
    expect(await follower.next(0, 20, NEVER)).toEqual({ kind: 'idle' })
    const entered = Promise.withResolvers<void>()
    const released = Promise.withResolvers<void>()
    log.holdTail(() => {
      entered.resolve()
      return released.promise
    })
    log.append('a', 1)
    log.wake(['a'])
    await entered.promise
    log.append('a', 1)
    log.wake(['a'])
    released.resolve()
    expect(await read(follower, 0, 2)).toEqual([1, 2])
  })

  test('that is behind the window reads its own pages and then joins the others', async () => {
    await hub.stop()
    await open({ window: { eventsMax: 10, bytesMax: 1 << 20 } })
    log.append('a', 100)
    using fast = hub.follow('a', 0)
    using slow = hub.follow('a', 0)
    expect(await read(fast, 0, 100)).toEqual(range(1, 100))
    expect(log.calls.pages).toBeGreaterThan(0)
    log.append('a', 20)
    log.wake(['a'])
    await read(fast, 100, 120)
    expect(await read(slow, 0, 120)).toEqual(range(1, 120))
  })

  test('is not left behind by what came while its own page was read', async () => {
    const entered = Promise.withResolvers<void>()
    const released = Promise.withResolvers<void>()
    const { readEvents } = log.reader
    log.append('a', 3)
    log.reader.readEvents = async () => {
      entered.resolve()
      await released.promise
      log.reader.readEvents = readEvents
      return { kind: 'events', events: [] }
    }
    using follower = hub.follow('a', 3)
    const reading = read(follower, 1, 4)
    await entered.promise
    log.append('a', 1)
    using other = hub.follow('a', 3)
    await read(other, 3, 4)
    released.resolve()
    expect(await reading).toEqual([2, 3, 4])
  })

  test('whose cursor was pruned is told the floor', async () => {
    log.reader.readEvents = async () => ({ kind: 'gone', floor: 40 })
    using follower = hub.follow('a', 50)
    expect(await follower.next(3, 1000, NEVER)).toEqual({ kind: 'gone', floor: 40 })
  })

  test('stops waiting when its signal aborts', async () => {
    using follower = hub.follow('a', 0)
    const leaving = new AbortController()
    const waiting = follower.next(0, 60_000, leaving.signal)
    leaving.abort()
    expect(await waiting).toEqual({ kind: 'idle' })
  })

  test('does not disturb the others when it leaves, and the last one closes the window', async () => {
    const first = hub.follow('a', 0)
    using second = hub.follow('a', 0)
    first[Symbol.dispose]()
    log.append('a', 1)
    log.wake(['a'])
    expect(await read(second, 0, 1)).toEqual([1])
    expect(hub.followedRuns).toBe(1)
    second[Symbol.dispose]()
    expect(hub.followedRuns).toBe(0)
    hub.follow('b', 0)[Symbol.dispose]()
  })
})

describe('the tail', () => {
  test('reads all runs with news in one query, one query at a time', async () => {
    const followers = range(1, 50).map((k) => hub.follow(`run-${k}`, 0))
    for (const k of range(1, 50)) log.append(`run-${k}`, 1)
    log.wake(null)
    await Promise.all(followers.map((follower) => read(follower, 0, 1)))
    expect(log.calls.tailingMax).toBe(1)
    expect(log.calls.tail).toBeLessThanOrEqual(3)
    for (const follower of followers) follower[Symbol.dispose]()
  })

  test('reads a long suffix on in pages, with no further wake-up', async () => {
    using follower = hub.follow('a', 0)
    await follower.next(0, 10, NEVER)
    log.append('a', 1800)
    log.wake(['a'])
    expect(await read(follower, 0, 1800)).toEqual(range(1, 1800))
  })

  test('asks only about the runs that were named by a wake-up', async () => {
    using a = hub.follow('a', 0)
    using b = hub.follow('b', 0)
    await Promise.all([a.next(0, 20, NEVER), b.next(0, 20, NEVER)])
    const { follows } = log.calls
    log.append('a', 1)
    log.wake(['a'])
    await read(a, 0, 1)
    expect(log.calls.follows).toBe(follows + 1)
  })

  test('asks nothing about runs that nobody follows or that have ended', async () => {
    log.append('a', 1, 'RUN_FINISHED')
    using follower = hub.follow('a', 0)
    await read(follower, 0, 1)
    const { follows } = log.calls
    log.wake(['a', 'b', 'c'])
    log.wake(null)
    expect(await follower.next(1, 20, NEVER)).toEqual({ kind: 'idle' })
    expect(log.calls.follows).toBe(follows)
  })

  test('goes on after a failed read, and forgets no run', async () => {
    await hub.stop()
    await open({ pollMs: 20 })
    using follower = hub.follow('a', 0)
    await follower.next(0, 10, NEVER)
    log.holdTail(async () => {
      log.holdTail(() => Promise.resolve())
      throw new Error('away')
    })
    log.append('a', 1)
    log.wake(['a'])
    expect(await read(follower, 0, 1)).toEqual([1])
    expect(errors.map((error) => error.message)).toEqual(['away'])
  })
})
