import { invariant } from '@holdfast/std'

/**
 * One server-sent event. LF only and no `event:` field, because AG-UI's own reader splits on
 * LF LF and knows no other.
 * @param id the event's sequence; `null` for a frame that moves nobody's cursor
 * @param json one line
 */
export function frame(id: number | null, json: string): string {
  invariant(!/[\r\n]/.test(json), 'a frame is one line of JSON')
  return id === null ? `data: ${json}\n\n` : `id: ${id}\ndata: ${json}\n\n`
}

/** A comment, which readers skip and proxies take for life. */
export function comment(text: string): string {
  invariant(!/[\r\n]/.test(text), 'a comment is one line')
  return `: ${text}\n\n`
}

/** Tells a reader how long to wait before it connects again. */
export function retry(ms: number): string {
  invariant(Number.isSafeInteger(ms) && ms >= 0, 'a retry is a whole number of milliseconds')
  return `retry: ${ms}\n\n`
}

/** The sequence in a Last-Event-ID or `after`; `null` if it is anything but decimal digits. */
export function parseCursor(value: string): number | null {
  if (!/^[0-9]+$/.test(value)) return null
  const cursor = Number(value)
  return Number.isSafeInteger(cursor) ? cursor : null
}
