import { asError } from '@holdfast/std'
import type { Lease, Store, Wakeups } from '@holdfast/store'
import {
  closeQueue,
  type LogListener,
  openQueue,
  type Queue,
  type RunLog,
  runLog,
  takeBatch,
} from './append-queue.ts'
import { type FlushDeps, flush } from './flush.ts'
import type { Probes } from './probes.ts'
import type { StaleLedger } from './stale-ledger.ts'

export type Appender = AsyncDisposable & {
  open(lease: Lease, base: number, listener: LogListener): RunLog
}

/** What a delta waits for others, at most. */
const FLUSH_MS = 25
const CONNECTIONS = 2

/**
 * All events of all runs of this process go through here, many runs in one statement. One statement a run is
 * in flight at most; a lost reply is decided by a re-read; data that the database refuses is bisected until
 * the one run that sent it is found.
 */
export function openAppender(options: {
  store: Store
  wakeups: Pick<Wakeups, 'publish'>
  probes: Probes
  onCommit: (events: number, ms: number) => void
  stale: Pick<StaleLedger, 'refused'>
  onError: (error: Error) => void
}): Appender {
  const dirty = new Set<Queue>()
  const stopping = new AbortController()
  const flights = new Set<Promise<void>>()
  let timer: NodeJS.Timeout | undefined
  let soon = false
  /** Somebody wanted to flush while all connections were busy. */
  let missed = false

  const deps: FlushDeps = {
    ...options,
    stopping: stopping.signal,
    durable(parts, ms) {
      options.wakeups.publish(
        'events',
        parts.map(({ queue }) => queue.lease.runId),
      )
      options.onCommit(
        parts.reduce((sum, { append }) => sum + append.events.length, 0),
        ms,
      )
    },
  }

  function schedule(urgent: boolean) {
    if (urgent && !soon) {
      soon = true
      setImmediate(() => {
        soon = false
        launch()
      })
    }
    timer ??= setTimeout(launch, FLUSH_MS)
  }

  function launch() {
    clearTimeout(timer)
    timer = undefined
    while (dirty.size > 0) {
      missed = flights.size >= CONNECTIONS
      if (missed) return
      const batch = takeBatch(dirty)
      if (batch.length > 0)
        depart(
          batch.map(({ queue }) => queue),
          flush(deps, batch),
        )
    }
  }

  function depart(queues: readonly Queue[], flushing: Promise<void>) {
    const flight = flushing
      .catch((error: unknown) => {
        options.onError(asError(error))
        for (const queue of queues) closeQueue(queue, asError(error))
      })
      .finally(() => {
        flights.delete(flight)
        for (const queue of queues) if (queue.pending.length > 0) dirty.add(queue)
        if (missed) launch()
        else if (dirty.size > 0) schedule(false)
      })
    flights.add(flight)
  }

  return {
    open(lease, base, listener) {
      const queue = openQueue(lease, base, listener)
      return runLog(queue, (urgent) => {
        if (!queue.busy) dirty.add(queue)
        schedule(urgent)
      })
    },
    async [Symbol.asyncDispose]() {
      clearTimeout(timer)
      stopping.abort()
      await Promise.all(flights)
    },
  }
}
