import { type Loop, loop } from '@holdfast/std'
import type { LogEvent } from '@holdfast/store'
import { appendTo, type EventWindow, emptyWindow } from './event-window.ts'

/** The two reads that following a log takes. */
export type LogReader = {
  readEvents(
    runId: string,
    after: number,
    limit: number,
  ): Promise<{ kind: 'events'; events: LogEvent[] } | { kind: 'gone'; floor: number }>
  tailRuns(
    follows: { runId: string; after: number }[],
    limitPerRun: number,
  ): Promise<{ runId: string; events: LogEvent[] }[]>
}

/** A run that somebody follows. The window belongs to the tail; followers read it. */
export type FollowedRun = {
  readonly runId: string
  readonly window: EventWindow
  /** Called when the window grew. */
  readonly waiters: Set<() => void>
  followers: number
  dirtySinceMs: number | undefined
  wokenAtMs: number | undefined
}

export type RunTail = {
  readonly loop: Loop
  readonly runs: ReadonlyMap<string, FollowedRun>
  /** Begins at `from` unless somebody follows the run already. */
  enter(runId: string, from: number): FollowedRun
  /** The last one to leave takes the window along. */
  leave(run: FollowedRun): void
  /** There may be news; `null`: of every run. */
  wake(runIds: readonly string[] | null): void
}

export const EVENTS_PER_READ_MAX = 500
const FOLLOWS_PER_READ_MAX = 1000

/**
 * One shared cursor per followed run, one batched read for all runs with news, one read in flight.
 * Wake-ups only hurry it: all followed runs are looked at every `pollMs` in any case.
 */
export function runTail(options: {
  log: Pick<LogReader, 'tailRuns'>
  pollMs: number
  window: { eventsMax: number; bytesMax: number }
  onError: (error: Error) => void
}): RunTail {
  const { pollMs } = options
  const runs = new Map<string, FollowedRun>()
  let fullLookAtMs = 0
  const tail = loop({ name: 'run tail', everyMs: pollMs, round, onError: options.onError })

  async function round() {
    const now = performance.now()
    // The loop's own pause is jittered down to 0.8 of its length.
    const everything = now - fullLookAtMs >= pollMs * 0.75
    if (everything) fullLookAtMs = now
    const due = [...runs.values()].filter(
      (run) => !run.window.ended && (everything || run.dirtySinceMs !== undefined),
    )
    for (let at = 0; at < due.length; at += FOLLOWS_PER_READ_MAX) {
      const more = await readOn(options, due.slice(at, at + FOLLOWS_PER_READ_MAX))
      more.forEach(markDirty)
    }
  }

  function markDirty(run: FollowedRun) {
    if (run.window.ended) return
    run.dirtySinceMs ??= performance.now()
    tail.wake()
  }

  return {
    loop: tail,
    runs,
    enter(runId, from) {
      const run = runs.get(runId) ?? newcomer(runId, from)
      runs.set(runId, run)
      run.followers += 1
      markDirty(run)
      return run
    },
    leave(run) {
      run.followers -= 1
      if (run.followers === 0) runs.delete(run.runId)
    },
    wake(runIds) {
      for (const runId of runIds ?? runs.keys()) {
        const run = runs.get(runId)
        if (run) markDirty(run)
      }
    },
  }
}

/** Puts what is new into the windows; gives the runs that may have still more. */
async function readOn(
  { log, window }: Pick<Parameters<typeof runTail>[0], 'log' | 'window'>,
  runs: readonly FollowedRun[],
): Promise<FollowedRun[]> {
  // The marks come off first: a wake-up that comes during the read must cause another one.
  const marked = new Map(runs.map((run) => [run.runId, { run, sinceMs: run.dirtySinceMs }]))
  for (const run of runs) run.dirtySinceMs = undefined
  const follows = runs.map((run) => ({ runId: run.runId, after: run.window.cursor }))
  const unfinished: FollowedRun[] = []
  for (const { runId, events } of await log.tailRuns(follows, EVENTS_PER_READ_MAX)) {
    const { run, sinceMs } = marked.get(runId) ?? {}
    if (!run || events.length === 0) continue
    appendTo(run.window, events, window)
    run.wokenAtMs = sinceMs
    for (const wake of run.waiters) wake()
    if (events.length >= EVENTS_PER_READ_MAX) unfinished.push(run)
  }
  return unfinished
}

function newcomer(runId: string, from: number): FollowedRun {
  return {
    runId,
    window: emptyWindow(from),
    waiters: new Set(),
    followers: 0,
    dirtySinceMs: undefined,
    wokenAtMs: undefined,
  }
}
