import { type AgUiEvent, coalesce, LIMITS } from '@holdfast/protocol'
import { asError, backoffMs, invariant, wait } from '@holdfast/std'
import {
  type Append,
  appendEvents,
  isDataError,
  type Lease,
  readOwnership,
  recordStaleWrite,
  type Store,
  type Wakeups,
} from '@holdfast/store'

/** What the appender tells the attempt of a log. */
export type LogListener = {
  /** These events are durable, and the log is `sequence` long now. Called in order. */
  committed(events: readonly AgUiEvent[], sequence: number): void
  cancelRequested(): void
  /** The fence refused: the attempt has no right any more. */
  lost(): void
  /** The database refused the data itself; repeating it would fail again. */
  poisoned(error: Error): void
}

/** One attempt's end of the appender. */
export type RunLog = {
  /** Queues events; resolves when there is room for more. Rejects once the log is closed. */
  append(events: readonly AgUiEvent[]): Promise<void>
  /** Resolves when everything that was appended is durable; rejects if it cannot become so. */
  settled(): Promise<void>
  /** Drops what is not sent; nothing more is written for this attempt by the appender. */
  close(): void
  /** The log's length, as far as it is known to be durable. */
  readonly sequence: number
}

export type Appender = AsyncDisposable & {
  open(lease: Lease, base: number, listener: LogListener): RunLog
}

type Log = {
  readonly lease: Lease
  readonly listener: LogListener
  base: number
  pending: AgUiEvent[]
  pendingBytes: number
  busy: boolean
  closed: Error | null
  /** Waiting for room or for everything to be durable. */
  readonly waiting: Set<() => void>
}

type Part = { log: Log; events: readonly AgUiEvent[]; append: Append }

const FLUSH_MS = 25
const CONNECTIONS = 2
const PENDING_BYTES_MAX = 1 << 20

/** Readers wait for these; deltas can wait for company. */
const PATIENT: ReadonlySet<string> = new Set([
  'TEXT_MESSAGE_CONTENT',
  'TOOL_CALL_ARGS',
  'REASONING_MESSAGE_CONTENT',
])

/**
 * All events of all runs of this process go through here, many runs in one statement. One statement a run is
 * in flight at most; a lost reply is decided by a re-read; data that the database refuses is bisected until
 * the one run that sent it is found.
 */
export function openAppender(options: {
  store: Store
  wakeups: Pick<Wakeups, 'publish'>
  onCommit?: (events: number, ms: number) => void
  onStale?: (operation: string) => void
  onError: (error: Error) => void
}): Appender {
  const { store } = options
  const dirty = new Set<Log>()
  const stopping = new AbortController()
  const flights = new Set<Promise<void>>()
  let timer: NodeJS.Timeout | undefined
  let soon = false
  /** Somebody wanted to flush while all connections were busy. */
  let missed = false

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
      const batch = take(dirty)
      if (batch.length === 0) return
      const flight = flush(batch)
        .catch((error: unknown) => {
          options.onError(asError(error))
          for (const { log } of batch) fail(log, asError(error))
        })
        .finally(() => {
          flights.delete(flight)
          if (missed) launch()
          else if (dirty.size > 0) schedule(false)
        })
      flights.add(flight)
    }
  }

  /** Ends when each run of the batch is settled: durable, lost, poisoned or closed. */
  async function flush(batch: Part[]): Promise<void> {
    for (let attempt = 0; ; attempt += 1) {
      const open = batch.filter(({ log }) => !log.closed)
      if (open.length === 0) return
      const sentAt = performance.now()
      try {
        const done = await appendEvents(
          store,
          open.map((part) => part.append),
        )
        const written = new Map(done.map((appended) => [appended.runId, appended]))
        const landed = open.filter(({ log }) => written.has(log.lease.runId))
        settle(landed, performance.now() - sentAt)
        for (const { log } of landed) {
          if (written.get(log.lease.runId)?.cancelRequested) log.listener.cancelRequested()
        }
        batch = open.filter(({ log }) => !written.has(log.lease.runId))
        if (batch.length === 0) return
        batch = await decide(batch, attempt > 0)
      } catch (error) {
        if (isDataError(error)) return await bisect(open, asError(error))
        options.onError(asError(error))
        batch = await decideOnceBack(open, attempt)
      }
    }
  }

  /** Parts whose fate is not known are asked for; what is not there and still ours is to be sent again. */
  async function decide(batch: Part[], mayHaveLanded: boolean): Promise<Part[]> {
    const owned = new Map(
      (
        await readOwnership(
          store,
          batch.map(({ log }) => log.lease),
        )
      ).map((ownership) => [ownership.runId, ownership]),
    )
    const again: Part[] = []
    for (const part of batch) {
      const { log, append } = part
      const now = owned.get(log.lease.runId)
      const mine = now?.currentEpoch === log.lease.epoch
      if (mine && now.lastSequence === append.base + append.events.length && mayHaveLanded) {
        settle([part], 0)
        if (!now.held) lose(log, null)
      } else if (now?.held && now.lastSequence === append.base) {
        again.push(part)
      } else {
        lose(log, 'append')
      }
    }
    return again
  }

  async function decideOnceBack(batch: Part[], attempt: number): Promise<Part[]> {
    for (let tries = attempt; ; tries += 1) {
      const open = batch.filter(({ log }) => !log.closed)
      if (open.length === 0) return []
      await wait(backoffMs(tries, { baseMs: 50, capMs: 1000 }), stopping.signal)
      try {
        return await decide(open, true)
      } catch (error) {
        options.onError(asError(error))
      }
    }
  }

  async function bisect(batch: Part[], error: Error): Promise<void> {
    const [only] = batch
    if (batch.length === 1 && only) {
      fail(only.log, error)
      only.log.listener.poisoned(error)
      return
    }
    const middle = batch.length >> 1
    await flush(batch.slice(0, middle))
    await flush(batch.slice(middle))
  }

  function settle(parts: readonly Part[], ms: number) {
    if (parts.length === 0) return
    options.wakeups.publish(
      'events',
      parts.map(({ log }) => log.lease.runId),
    )
    for (const { log, events, append } of parts) {
      log.base = append.base + append.events.length
      log.busy = false
      options.onCommit?.(append.events.length, ms)
      log.listener.committed(events, log.base)
      if (log.pending.length > 0 && !log.closed) {
        dirty.add(log)
        schedule(false)
      }
      wakeAll(log)
    }
  }

  function lose(log: Log, operation: string | null) {
    if (log.closed) return
    if (operation) {
      options.onStale?.(operation)
      recordStaleWrite(store, log.lease, operation).catch(options.onError)
    }
    fail(log, new Error(`run ${log.lease.runId} is not ours any more`))
    log.listener.lost()
  }

  function fail(log: Log, error: Error) {
    log.closed ??= error
    log.busy = false
    log.pending = []
    log.pendingBytes = 0
    dirty.delete(log)
    wakeAll(log)
  }

  return {
    open(lease, base, listener) {
      const log: Log = {
        lease,
        listener,
        base,
        pending: [],
        pendingBytes: 0,
        busy: false,
        closed: null,
        waiting: new Set(),
      }
      return runLog(
        log,
        (urgent) => {
          if (!log.busy) dirty.add(log)
          schedule(urgent)
        },
        fail,
      )
    },
    async [Symbol.asyncDispose]() {
      clearTimeout(timer)
      stopping.abort()
      await Promise.all(flights)
    },
  }
}

function runLog(
  log: Log,
  touched: (urgent: boolean) => void,
  fail: (log: Log, error: Error) => void,
): RunLog {
  async function until(condition: () => boolean) {
    while (!condition()) {
      if (log.closed) throw log.closed
      await new Promise<void>((resolve) => log.waiting.add(resolve))
    }
  }
  return {
    async append(events) {
      if (log.closed) throw log.closed
      if (events.length === 0) return
      log.pending.push(...events)
      for (const event of events) log.pendingBytes += roughBytes(event)
      touched(events.some((event) => !PATIENT.has(event.type)))
      await until(() => log.pendingBytes < PENDING_BYTES_MAX)
    },
    async settled() {
      await until(() => log.pending.length === 0 && !log.busy)
    },
    close() {
      fail(log, new Error('the log is closed'))
    },
    get sequence() {
      return log.base
    },
  }
}

/** The next batch: bounded, and in turn, so that a busy run does not starve the others. */
function take(dirty: Set<Log>): Part[] {
  const batch: Part[] = []
  let events = 0
  let bytes = 0
  for (const log of dirty) {
    if (log.busy) {
      dirty.delete(log)
      continue
    }
    const full = events >= LIMITS.flushEventsMax || bytes >= LIMITS.flushBytesMax
    if (full && batch.length > 0) break
    dirty.delete(log)
    const part = cut(log, LIMITS.flushEventsMax - events, LIMITS.flushBytesMax - bytes)
    if (log.pending.length > 0) dirty.add(log)
    if (part.append.events.length === 0) {
      wakeAll(log)
      continue
    }
    log.busy = true
    batch.push(part)
    events += part.append.events.length
    bytes += part.append.events.reduce((sum, event) => sum + event.json.length, 0)
  }
  return batch
}

/** Takes from a log what fits, at least one event: an oversized one is a flush of its own. */
function cut(log: Log, eventsMax: number, bytesMax: number): Part {
  let count = 0
  let bytes = 0
  while (count < log.pending.length && count < Math.max(1, eventsMax)) {
    const event = log.pending[count]
    invariant(event, 'the index is within the queue')
    const size = roughBytes(event)
    if (count > 0 && bytes + size > bytesMax) break
    bytes += size
    count += 1
  }
  const events = coalesce(log.pending.splice(0, count))
  log.pendingBytes = Math.max(0, log.pendingBytes - bytes)
  if (log.pending.length === 0) log.pendingBytes = 0
  const serialised = events.map((event) => ({ type: event.type, json: JSON.stringify(event) }))
  return { log, events, append: { lease: log.lease, base: log.base, events: serialised } }
}

/** Good enough to bound a buffer; a delta is not serialised twice for it. */
function roughBytes(event: AgUiEvent): number {
  if ('delta' in event && typeof event.delta === 'string') return event.delta.length + 80
  return PATIENT.has(event.type) ? 80 : JSON.stringify(event).length
}

function wakeAll(log: Log) {
  for (const wake of log.waiting) wake()
  log.waiting.clear()
}
