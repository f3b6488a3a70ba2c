import { createParser } from 'eventsource-parser'
import { AgentFailure } from '../agent.ts'

export type SseCaps = { lineBytesMax: number; eventBytesMax: number; totalBytesMax: number }

/** More than any honest agent sends; less than what would take a runner down. */
export const SSE_CAPS: SseCaps = {
  lineBytesMax: 1 << 20,
  eventBytesMax: 8 << 20,
  totalBytesMax: 64 << 20,
}

const CR = 13
const LF = 10

export type SseReader = {
  /**
   * The data of the events that these bytes complete. `failure` limit_exceeded: something is too
   * large, and nothing behind it was read.
   */
  push(bytes: Uint8Array): { data: string[]; failure?: AgentFailure }
  /** The data of a last event whose blank line never came. */
  end(): string[]
}

/** Server-sent events from bytes as they come, however they are cut, behind byte caps. */
export function createSseReader(caps: SseCaps = SSE_CAPS): SseReader {
  const decoder = new TextDecoder()
  const counter = createByteCounter(caps)
  let ready: string[] = []
  const parser = createParser({ onEvent: ({ data }) => ready.push(data) })

  function fed(text: string): string[] {
    ready = []
    if (text !== '') parser.feed(text)
    return ready.filter((data) => data.trim() !== '')
  }

  return {
    push(bytes) {
      const over = counter.count(bytes)
      const within = over ? bytes.subarray(0, over.at) : bytes
      const data = fed(decoder.decode(within, { stream: true }))
      if (!over) return { data }
      const failure = new AgentFailure(
        'limit_exceeded',
        `${over.what} of the upstream is too large`,
      )
      return { data, failure }
    },
    end: () => fed(`${decoder.decode()}\n\n`),
  }
}

/** Counts before anything is buffered: every line, comments and unknown fields included. */
function createByteCounter(caps: SseCaps) {
  let total = 0
  let event = 0
  let line = 0
  let afterCr = false

  function exceeded(): string | undefined {
    if (line > caps.lineBytesMax) return 'a line'
    if (event > caps.eventBytesMax) return 'an event'
    return total > caps.totalBytesMax ? 'the stream' : undefined
  }

  function add(bytes: number): void {
    total += bytes
    event += bytes
  }

  return {
    /** Behind which byte nothing fits any more, and why, if a cap is passed. */
    count(bytes: Uint8Array): { at: number; what: string } | undefined {
      let at = 0
      for (const end of lineEnds(bytes)) {
        const length = end - at
        if (length > 0) afterCr = false
        line += length
        add(length)
        if (end < bytes.length) add(1)
        const what = exceeded()
        if (what) return { at, what }
        if (end === bytes.length) break
        const isSecondHalf = bytes[end] === LF && afterCr
        afterCr = bytes[end] === CR
        at = end + 1
        if (isSecondHalf) continue
        if (line === 0) event = 0
        line = 0
      }
      return undefined
    },
  }
}

/** Where lines end, and where the bytes do. */
function* lineEnds(bytes: Uint8Array): Iterable<number> {
  const next = (byte: number, from: number) => {
    const found = bytes.indexOf(byte, from)
    return found === -1 ? bytes.length : found
  }
  let lf = next(LF, 0)
  let cr = next(CR, 0)
  while (lf < bytes.length || cr < bytes.length) {
    yield Math.min(lf, cr)
    if (lf < cr) lf = next(LF, lf + 1)
    else cr = next(CR, cr + 1)
  }
  yield bytes.length
}
