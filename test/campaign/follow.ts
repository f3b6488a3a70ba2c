import { wait } from '@holdfast/std'
import { createParser } from 'eventsource-parser'
import { isTerminalEvent } from '../support/api.ts'
import type { Random } from '../support/seeded.ts'
import type { Reading } from './history.ts'

/** Who reads, and over which addresses; they change when a BFF is replaced. */
export type Reader = {
  readonly urls: () => readonly string[]
  readonly token: string
  readonly random: Random
}

/** A connection without a byte for so long is left; the service speaks every ten seconds. */
const IDLE_MS = 11_000

/**
 * Follows a run to its terminal event over as many connections as it takes, some of which it cuts itself, through all
 * the BFFs in turn, and keeps every frame that it accepted. Ends early only when `signal` aborts.
 */
export async function follow(reading: Reading, reader: Reader, signal: AbortSignal): Promise<void> {
  const { random } = reader
  while (!reading.ended && !signal.aborted) {
    const urls = reader.urls()
    if (urls.length > 0) {
      const cutAfter = random.chance(0.5) ? random.whole(1, 25) : Number.POSITIVE_INFINITY
      reading.connections += 1
      await oneConnection(reading, random.pick(urls), reader.token, cutAfter, signal)
    }
    if (!reading.ended) await wait(random.whole(20, 300), signal).catch(() => undefined)
  }
}

async function oneConnection(
  reading: Reading,
  url: string,
  token: string,
  cutAfter: number,
  signal: AbortSignal,
): Promise<void> {
  const leaving = new AbortController()
  const left = () => leaving.abort()
  signal.addEventListener('abort', left, { once: true })
  let idle = setTimeout(left, IDLE_MS)
  const cursor = cursorOf(reading)
  // A prelude that is cut before its only id leaves nothing behind.
  if (cursor === null) reading.frames.length = 0
  try {
    const response = await fetch(`${url}/runs/${reading.runId}/events`, {
      headers: {
        authorization: `Bearer ${token}`,
        accept: 'text/event-stream',
        ...(cursor === null ? {} : { 'last-event-id': `${cursor}` }),
      },
      signal: leaving.signal,
    })
    if (response.status === 204) return tellEnd(reading)
    if (response.status !== 200 || !response.body) {
      // Also what is only temporary may not be an error here: EventSource would give up for ever.
      reading.complaints.push(`answered ${response.status} to cursor ${cursor}`)
      return
    }
    let count = 0
    const parser = createParser({
      onEvent({ id, data }) {
        if (leaving.signal.aborted) return
        count += 1
        accept(reading, id === undefined ? null : Number(id), data)
        if (reading.ended || count >= cutAfter) leaving.abort()
      },
    })
    const decoder = new TextDecoder()
    for await (const chunk of response.body) {
      clearTimeout(idle)
      idle = setTimeout(left, IDLE_MS)
      parser.feed(decoder.decode(chunk, { stream: true }))
    }
  } catch {
    // Connections break; that is what this is for. What was accepted counts, and nothing else.
  } finally {
    clearTimeout(idle)
    signal.removeEventListener('abort', left)
    leaving.abort()
  }
}

/** The last id; null in front of a prelude. */
function cursorOf({ from, frames }: Reading): number | null {
  return frames.findLast(({ id }) => id !== null)?.id ?? (from === 'start' ? 0 : null)
}

function accept(reading: Reading, id: number | null, data: string) {
  const cursor = cursorOf(reading)
  if (id === null && cursor !== null) reading.complaints.push(`a frame without id after ${cursor}`)
  if (id !== null && cursor !== null && id !== cursor + 1) {
    reading.complaints.push(`event ${id} came after ${cursor}`)
  }
  reading.frames.push({ id, data })
  if (id !== null && data.includes('RUN_')) reading.ended = isTerminalEvent(JSON.parse(data))
}

/** 204: the cursor is the end of the log, so the terminal event must have been its last. */
function tellEnd(reading: Reading) {
  reading.complaints.push('the log ended without a terminal event')
  reading.ended = true
}
