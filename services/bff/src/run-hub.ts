import { asError, loop, type Service } from '@holdfast/std'
import type { LogEvent } from '@holdfast/store'
import { appendTo, type EventWindow, emptyWindow, sliceOf } from './event-window.ts'
import { type Gate, gate } from './gate.ts'

/** The two reads a hub needs of a log. */
export type LogReader = {
  readEvents(runId: string, after: number, limit: number): Promise<Page>
  tailRuns(follows: Follow[], limitPerRun: number): Promise<{ runId: string; events: LogEvent[] }[]>
}
type Follow = { runId: string; after: number }
type Page = { kind: 'events'; events: LogEvent[] } | { kind: 'gone'; floor: number }

/**
 * What a subscriber gets: new events; or that none came in time; or that its cursor was pruned.
 * `wokenAtMs` (of performance.now()) is when this process first heard of the newest of them.
 */
export type Batch =
  | { kind: 'events'; events: readonly LogEvent[]; wokenAtMs: number | undefined }
  | { kind: 'idle' }
  | { kind: 'gone'; floor: number }

export type Follower = Disposable & {
  /** Events > `after`, in order and without a gap, as soon as there are any. */
  next(after: number, waitMs: number, signal: AbortSignal): Promise<Batch>
}

export type RunHub = Service & {
  /** `from`: where the shared tail begins when nobody follows this run yet: the log's end as read last. */
  follow(runId: string, from: number): Follower
  /** Shares the bound on reads that single subscribers cause. */
  readonly reads: Gate
  readonly followedRuns: number
}

/** The part of the wake-ups a hub uses. */
export type WakeSource = {
  subscribe(topic: 'events', onWake: (runIds: readonly string[] | null) => void): () => void
}

type Followed = {
  readonly runId: string
  readonly window: EventWindow
  readonly waiters: Set<() => void>
  followers: number
  dirtySinceMs: number | undefined
  wokenAtMs: number | undefined
}

const EVENTS_PER_READ_MAX = 500
const FOLLOWS_PER_READ_MAX = 1000

/**
 * The tail: one shared cursor per followed run, one batched read for all runs with news, one read
 * in flight, and a bounded window in memory from which every subscriber reads at its own pace. A
 * subscriber that fell out of the window reads its own pages. Wake-ups only hurry it: all followed
 * runs are looked at every `pollMs` in any case. Nobody holds a connection while waiting.
 */
export function runHub(options: {
  log: LogReader
  wakeups: WakeSource
  pollMs: number
  onError: (error: Error) => void
  readsMax?: number
  window?: { eventsMax: number; bytesMax: number }
}): RunHub {
  const { log, pollMs } = options
  const limits = options.window ?? { eventsMax: 1000, bytesMax: 1 << 20 }
  const reads = gate(options.readsMax ?? 4)
  const followed = new Map<string, Followed>()
  let fullLookAtMs = 0
  let unsubscribe: (() => void) | undefined

  const tail = loop({ name: 'run hub', everyMs: pollMs, round, onError: options.onError })

  async function round() {
    const now = performance.now()
    // The loop's own pause is jittered down to 0.8 of its length.
    const everything = now - fullLookAtMs >= pollMs * 0.75
    if (everything) fullLookAtMs = now
    const due = [...followed.values()].filter(
      (run) => !run.window.ended && (everything || run.dirtySinceMs !== undefined),
    )
    for (let at = 0; at < due.length; at += FOLLOWS_PER_READ_MAX) {
      await readTail(due.slice(at, at + FOLLOWS_PER_READ_MAX))
    }
  }

  async function readTail(runs: readonly Followed[]) {
    // Taken off first: a wake-up that comes during the read must cause another one.
    const dirty = new Map(runs.map((run) => [run.runId, { run, sinceMs: run.dirtySinceMs }]))
    for (const run of runs) run.dirtySinceMs = undefined
    const follows = runs.map((run) => ({ runId: run.runId, after: run.window.cursor }))
    try {
      for (const { runId, events } of await log.tailRuns(follows, EVENTS_PER_READ_MAX)) {
        const entry = dirty.get(runId)
        if (!entry || events.length === 0) continue
        appendTo(entry.run.window, events, limits)
        entry.run.wokenAtMs = entry.sinceMs
        for (const wake of entry.run.waiters) wake()
        if (events.length >= EVENTS_PER_READ_MAX) markDirty(entry.run)
      }
    } catch (error) {
      for (const { run, sinceMs } of dirty.values()) run.dirtySinceMs ??= sinceMs
      throw asError(error)
    }
  }

  function markDirty(run: Followed) {
    run.dirtySinceMs ??= performance.now()
    tail.wake()
  }

  function onWake(runIds: readonly string[] | null) {
    for (const runId of runIds ?? followed.keys()) {
      const run = followed.get(runId)
      if (run && !run.window.ended) markDirty(run)
    }
  }

  function follow(runId: string, from: number): Follower {
    let run = followed.get(runId)
    if (!run) {
      run = {
        runId,
        window: emptyWindow(from),
        waiters: new Set(),
        followers: 0,
        dirtySinceMs: undefined,
        wokenAtMs: undefined,
      }
      followed.set(runId, run)
    }
    const mine = run
    mine.followers += 1
    markDirty(mine)
    const joinedAtMs = performance.now()
    return {
      async next(after, waitMs, signal) {
        const batch = await next(mine, after, waitMs, signal)
        // What was there before this follower came was not late for it.
        const late = batch.kind === 'events' && (batch.wokenAtMs ?? 0) >= joinedAtMs
        return batch.kind === 'events' && !late ? { ...batch, wokenAtMs: undefined } : batch
      },
      [Symbol.dispose]() {
        mine.followers -= 1
        if (mine.followers === 0) followed.delete(runId)
      },
    }
  }

  async function next(
    run: Followed,
    after: number,
    waitMs: number,
    signal: AbortSignal,
  ): Promise<Batch> {
    const untilMs = performance.now() + waitMs
    for (;;) {
      if (signal.aborted) return { kind: 'idle' }
      const seen = run.window.cursor
      const batch = await available(run, after)
      if (batch) return batch
      // What came while `available` was awaited would wake nobody.
      if (run.window.cursor !== seen) continue
      if (!(await news(run, untilMs - performance.now(), signal))) return { kind: 'idle' }
    }
  }

  async function available(run: Followed, after: number): Promise<Batch | undefined> {
    if (after >= run.window.cursor) return undefined
    const events = sliceOf(run.window, after)
    if (events) {
      const live = events.at(-1)?.sequence === run.window.cursor
      return { kind: 'events', events, wokenAtMs: live ? run.wokenAtMs : undefined }
    }
    const page = await reads(() => log.readEvents(run.runId, after, EVENTS_PER_READ_MAX))
    if (page.kind === 'gone') return page
    if (page.events.length === 0) return undefined
    return { kind: 'events', events: page.events, wokenAtMs: undefined }
  }

  return {
    name: tail.name,
    failed: tail.failed,
    reads,
    follow,
    get followedRuns() {
      return followed.size
    },
    async start() {
      unsubscribe = options.wakeups.subscribe('events', onWake)
      await tail.start()
    },
    async stop() {
      unsubscribe?.()
      await tail.stop()
    },
  }
}

/** True when the run's window grew, false when the time or the signal ended the wait. */
function news(run: Followed, waitMs: number, signal: AbortSignal): Promise<boolean> {
  if (waitMs <= 0 || signal.aborted) return Promise.resolve(false)
  return new Promise((resolve) => {
    const settle = (grown: boolean) => {
      clearTimeout(timer)
      run.waiters.delete(onNews)
      signal.removeEventListener('abort', onAbort)
      resolve(grown)
    }
    const onNews = () => settle(true)
    const onAbort = () => settle(false)
    const timer = setTimeout(onAbort, waitMs)
    run.waiters.add(onNews)
    signal.addEventListener('abort', onAbort, { once: true })
  })
}
