import type { Service } from '@holdfast/std'
import type { LogEvent } from '@holdfast/store'
import { sliceOf } from './event-window.ts'
import { type Gate, gate } from './gate.ts'
import { EVENTS_PER_READ_MAX, type FollowedRun, type LogReader, runTail } from './run-tail.ts'

/**
 * What a subscriber gets: new events; or that none came in time; or that its cursor was pruned.
 * `wokenAtMs` (of performance.now()) is when this process first heard of the newest of them, if
 * that was after the subscriber came.
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
  /** `from`: where the shared tail begins when nobody follows this run yet, the log's end as read last. */
  follow(runId: string, from: number): Follower
  /** Shares the bound on reads that single subscribers cause. */
  readonly reads: Gate
  readonly followedRuns: number
}

/** The part of the wake-ups a hub uses. */
export type WakeSource = {
  subscribe(topic: 'events', onWake: (runIds: readonly string[] | null) => void): () => void
}

const WINDOW = { eventsMax: 1000, bytesMax: 1 << 20 }
const READS_MAX = 4

/**
 * Fan-out in memory: every subscriber reads the shared window of its run at its own pace, and its
 * own pages when it fell out of it. Nobody holds a connection or a queue while waiting.
 */
export function runHub(options: {
  log: LogReader
  wakeups: WakeSource
  pollMs: number
  onError: (error: Error) => void
  window?: { eventsMax: number; bytesMax: number }
}): RunHub {
  const { log } = options
  const tail = runTail({ ...options, window: options.window ?? WINDOW })
  const reads = gate(READS_MAX)
  let unsubscribe: (() => void) | undefined

  async function available(run: FollowedRun, after: number): Promise<Batch | undefined> {
    if (after >= run.window.cursor) return undefined
    const events = sliceOf(run.window, after)
    if (events) {
      const newest = events.at(-1)?.sequence === run.window.cursor
      return { kind: 'events', events, wokenAtMs: newest ? run.wokenAtMs : undefined }
    }
    const page = await reads(() => log.readEvents(run.runId, after, EVENTS_PER_READ_MAX))
    if (page.kind === 'gone') return page
    if (page.events.length === 0) return undefined
    return { kind: 'events', events: page.events, wokenAtMs: undefined }
  }

  async function next(
    run: FollowedRun,
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

  function follow(runId: string, from: number): Follower {
    const run = tail.enter(runId, from)
    const joinedAtMs = performance.now()
    return {
      async next(after, waitMs, signal) {
        const batch = await next(run, after, waitMs, signal)
        // What was there before this follower came was not late for it.
        const old = batch.kind === 'events' && (batch.wokenAtMs ?? 0) < joinedAtMs
        return old ? { ...batch, wokenAtMs: undefined } : batch
      },
      [Symbol.dispose]: () => tail.leave(run),
    }
  }

  return {
    name: 'run hub',
    failed: tail.loop.failed,
    reads,
    follow,
    get followedRuns() {
      return tail.runs.size
    },
    async start() {
      unsubscribe = options.wakeups.subscribe('events', tail.wake)
      await tail.loop.start()
    },
    async stop() {
      unsubscribe?.()
      await tail.loop.stop()
    },
  }
}

/** True when the run's window grew, false when the time or the signal ended the wait. */
function news(run: FollowedRun, waitMs: number, signal: AbortSignal): Promise<boolean> {
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
