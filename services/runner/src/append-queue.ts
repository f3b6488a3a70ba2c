import { type AgUiEvent, coalesce, LIMITS } from '@holdfast/protocol'
import { invariant } from '@holdfast/std'
import type { Append, Lease } from '@holdfast/store'

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

/** The events of one attempt that are on their way, and how far its log is. */
export type Queue = {
  readonly lease: Lease
  readonly listener: LogListener
  base: number
  pending: AgUiEvent[]
  pendingBytes: number
  /** A part of it is in flight; at most one is, so that sequences cannot pass each other. */
  busy: boolean
  closed: Error | null
  /** Those who wait for room, or for everything to be durable. */
  readonly waiting: Set<() => void>
}

/** What of one queue goes along in a flush. */
export type Part = { queue: Queue; events: readonly AgUiEvent[]; append: Append }

/** A handler that outruns the database waits. */
const PENDING_BYTES_MAX = 1 << 20

/** Readers wait for all others; these can wait for company. */
const PATIENT: ReadonlySet<string> = new Set([
  'TEXT_MESSAGE_CONTENT',
  'TOOL_CALL_ARGS',
  'REASONING_MESSAGE_CONTENT',
])

export function openQueue(lease: Lease, base: number, listener: LogListener): Queue {
  return {
    lease,
    listener,
    base,
    pending: [],
    pendingBytes: 0,
    busy: false,
    closed: null,
    waiting: new Set(),
  }
}

/** The attempt's view of a queue. `touched` says that there is something to flush, and whether it is urgent. */
export function runLog(queue: Queue, touched: (urgent: boolean) => void): RunLog {
  async function until(condition: () => boolean) {
    for (;;) {
      // A closed queue is empty as well, but what it held did not become durable.
      if (queue.closed) throw queue.closed
      if (condition()) return
      await new Promise<void>((resolve) => queue.waiting.add(resolve))
    }
  }
  return {
    async append(events) {
      if (queue.closed) throw queue.closed
      if (events.length === 0) return
      queue.pending.push(...events)
      for (const event of events) queue.pendingBytes += roughBytes(event)
      touched(events.some((event) => !PATIENT.has(event.type)))
      await until(() => queue.pendingBytes < PENDING_BYTES_MAX)
    },
    async settled() {
      await until(() => queue.pending.length === 0 && !queue.busy)
    },
    close() {
      closeQueue(queue, new Error('the log is closed'))
    },
    get sequence() {
      return queue.base
    },
  }
}

/** Nothing more is taken from it; whoever waits for it is told why. The first reason stays. */
export function closeQueue(queue: Queue, error: Error): void {
  queue.closed ??= error
  queue.busy = false
  queue.pending = []
  queue.pendingBytes = 0
  wakeAll(queue)
}

/** A part has become durable: the queue goes on behind it. */
export function advance({ queue, events, append }: Part): void {
  queue.base = append.base + append.events.length
  queue.busy = false
  queue.listener.committed(events, queue.base)
  wakeAll(queue)
}

/** The next batch: bounded, and in turn, so that a run with much to say does not starve the others. */
export function takeBatch(dirty: Set<Queue>): Part[] {
  const batch: Part[] = []
  let events = 0
  let bytes = 0
  for (const queue of dirty) {
    const full = events >= LIMITS.flushEventsMax || bytes >= LIMITS.flushBytesMax
    if (full && batch.length > 0) break
    dirty.delete(queue)
    if (queue.busy || queue.closed) continue
    const part = cut(queue, LIMITS.flushEventsMax - events, LIMITS.flushBytesMax - bytes)
    if (part.append.events.length === 0) {
      // Nothing was said but empty deltas.
      if (queue.pending.length > 0) dirty.add(queue)
      wakeAll(queue)
      continue
    }
    queue.busy = true
    batch.push(part)
    events += part.append.events.length
    bytes += part.append.events.reduce((sum, event) => sum + event.json.length, 0)
  }
  return batch
}

/** Takes from a queue what fits, at least one event: an oversized one is a flush of its own. */
function cut(queue: Queue, eventsMax: number, bytesMax: number): Part {
  let count = 0
  let bytes = 0
  while (count < queue.pending.length && count < Math.max(1, eventsMax)) {
    const event = queue.pending[count]
    invariant(event, 'the index is within the queue')
    const size = roughBytes(event)
    if (count > 0 && bytes + size > bytesMax) break
    bytes += size
    count += 1
  }
  const events = coalesce(queue.pending.splice(0, count))
  queue.pendingBytes = queue.pending.length === 0 ? 0 : Math.max(0, queue.pendingBytes - bytes)
  const serialised = events.map((event) => ({ type: event.type, json: JSON.stringify(event) }))
  return { queue, events, append: { lease: queue.lease, base: queue.base, events: serialised } }
}

/** Good enough to bound a buffer; a delta is not serialised twice for it. */
function roughBytes(event: AgUiEvent): number {
  if ('delta' in event && typeof event.delta === 'string') return event.delta.length + 80
  return JSON.stringify(event).length
}

function wakeAll(queue: Queue) {
  for (const wake of queue.waiting) wake()
  queue.waiting.clear()
}
