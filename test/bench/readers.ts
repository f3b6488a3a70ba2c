import { connect, type Socket } from 'node:net'

/** What many readers saw together, as cheaply as can be told. */
export type Crowd = Disposable & {
  /** Reads a run's events from the beginning, or another path's. */
  join(path: string): Reader
  /** Forgets what was seen, so that only what comes from now on counts. */
  reset(): void
  /** Milliseconds from the making of each word to its arrival. */
  readonly latenciesMs: readonly number[]
  readonly frames: number
  /** Frames whose id was not the last one's successor. */
  readonly gaps: number
  readonly readers: readonly Reader[]
}

export type Reader = {
  readonly socket: Socket
  /** Frames that carry an id, as read so far. */
  frames: number
  lastId: number
  bytes: number
  /** When its newest words came. */
  lastWordAtMs: number
  /** Called after each piece of the answer. */
  onData?: ((text: string) => void) | undefined
}

const SEEN = /\nid: (\d+)\n|t(\d{13}) /g

/**
 * Opens raw sockets: a client that parses as browsers do would take the cores that are to be measured. A frame is
 * told by its id and a word by the time that it carries.
 */
export function openCrowd(port: number): Crowd {
  const readers: Reader[] = []
  let latenciesMs: number[] = []
  let frames = 0
  let gaps = 0

  function take(reader: Reader, text: string) {
    const now = Date.now()
    for (const [, id, madeAt] of text.matchAll(SEEN)) {
      if (madeAt !== undefined) {
        latenciesMs.push(now - Number(madeAt))
        reader.lastWordAtMs = now
        continue
      }
      const sequence = Number(id)
      if (reader.lastId >= 0 && sequence !== reader.lastId + 1) gaps += 1
      reader.lastId = sequence
      reader.frames += 1
      frames += 1
    }
  }

  return {
    readers,
    join(path) {
      const socket = connect({ port, host: '127.0.0.1', noDelay: true })
      const reader: Reader = { socket, frames: 0, lastId: -1, bytes: 0, lastWordAtMs: 0 }
      let rest = ''
      socket.setEncoding('latin1')
      socket.on('data', (chunk: string) => {
        reader.bytes += chunk.length
        const whole = rest + chunk
        // A frame that is not complete is looked at with its end; the line break before it belongs to it.
        const end = whole.lastIndexOf('\n\n') + 1
        rest = whole.slice(end)
        take(reader, whole.slice(0, end))
        reader.onData?.(chunk)
      })
      socket.on('error', () => undefined)
      socket.write(`GET ${path} HTTP/1.1\r\nhost: bench\r\naccept: text/event-stream\r\n\r\n`)
      readers.push(reader)
      return reader
    },
    reset() {
      latenciesMs = []
      frames = 0
    },
    get latenciesMs() {
      return latenciesMs
    },
    get frames() {
      return frames
    },
    get gaps() {
      return gaps
    },
    [Symbol.dispose]() {
      for (const { socket } of readers) socket.destroy()
    },
  }
}
