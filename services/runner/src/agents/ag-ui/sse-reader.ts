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
  /** The data of the events that these bytes complete. @throws AgentFailure limit_exceeded */
  push(bytes: Uint8Array): string[]
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
      counter.count(bytes)
      return fed(decoder.decode(bytes, { stream: true }))
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

  function check() {
    if (line > caps.lineBytesMax) overflow('a line')
    if (event > caps.eventBytesMax) overflow('an event')
    if (total > caps.totalBytesMax) overflow('the stream')
  }

  return {
    count(bytes: Uint8Array) {
      for (const byte of bytes) {
        total += 1
        event += 1
        const isSecondHalf = byte === LF && afterCr
        afterCr = byte === CR
        if (isSecondHalf) continue
        if (byte !== LF && byte !== CR) {
          line += 1
          continue
        }
        check()
        if (line === 0) event = 0
        line = 0
      }
      check()
    },
  }
}

function overflow(what: string): never {
  throw new AgentFailure('limit_exceeded', `${what} of the upstream is too large`)
}
