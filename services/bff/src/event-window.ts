import type { LogEvent } from '@holdfast/store'

/** The newest events of one run, `floor + 1` to `cursor` without a gap. */
export type EventWindow = {
  events: LogEvent[]
  bytes: number
  floor: number
  cursor: number
  /** The terminal event was seen: nothing follows. */
  ended: boolean
}

/** One socket write; a slow reader loses at most this much when it is closed. */
const BATCH_BYTES_MAX = 64 << 10

export function emptyWindow(cursor: number): EventWindow {
  return { events: [], bytes: 0, floor: cursor, cursor, ended: false }
}

/** Adds the next events and lets the oldest go beyond the limits; the newest always stays. */
export function appendTo(
  window: EventWindow,
  events: readonly LogEvent[],
  limits: { eventsMax: number; bytesMax: number },
): void {
  const first = events[0]?.sequence ?? window.cursor + 1
  // Only pruning makes a hole: readers from before it then meet the store's own answer.
  if (first !== window.cursor + 1) Object.assign(window, emptyWindow(first - 1))
  for (const event of events) {
    window.events.push(event)
    window.bytes += event.json.length
    window.cursor = event.sequence
    window.ended = isTerminalEvent(event)
  }
  let drop = 0
  while (
    window.events.length - drop > 1 &&
    (window.events.length - drop > limits.eventsMax || window.bytes > limits.bytesMax)
  ) {
    window.bytes -= window.events[drop]?.json.length ?? 0
    drop += 1
  }
  window.events.splice(0, drop)
  window.floor += drop
}

/** A bounded number of the events > `after`, or undefined when some of them are not held any more. */
export function sliceOf(window: EventWindow, after: number): LogEvent[] | undefined {
  if (after < window.floor || after >= window.cursor) return undefined
  const from = after - window.floor
  let to = from
  let bytes = 0
  while (to < window.events.length && bytes < BATCH_BYTES_MAX) {
    bytes += window.events[to]?.json.length ?? 0
    to += 1
  }
  return window.events.slice(from, to)
}

/** The last event of a log is its only terminal one. */
export function isTerminalEvent(event: { type: string }): boolean {
  return event.type === 'RUN_FINISHED' || event.type === 'RUN_ERROR'
}
