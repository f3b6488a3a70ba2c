import { once } from 'node:events'
import { connect } from 'node:net'

/** A reader over a bare socket that takes only what it is told to take. */
export type SlowSocket = {
  /** The answer's bytes so far. */
  readonly text: string
  /** Takes at most `bytes` more of what has come. */
  sip(bytes: number): void
  /** From now on takes everything; resolves when the server has ended. */
  drink(): Promise<void>
  /** Goes away as a machine does that lost its power: a reset, whatever is under way. */
  vanish(): void
}

/** Sends a GET with `connection: close` and takes nothing of the answer but its first bytes. */
export async function openSlowSocket(url: string): Promise<SlowSocket> {
  const { hostname, port, pathname, search } = new URL(url)
  const socket = connect({ host: hostname, port: Number(port) })
  const parts: Buffer[] = []
  const ended = new Promise<void>((resolve, reject) => {
    socket.once('end', resolve)
    socket.once('error', reject)
  })
  ended.catch(() => undefined)
  const take = (bytes?: number) => {
    const part = socket.read(bytes) ?? (bytes === undefined ? null : socket.read())
    if (part) parts.push(part)
  }
  socket.write(
    `GET ${pathname}${search} HTTP/1.1\r\nhost: ${hostname}\r\nconnection: close\r\n\r\n`,
  )
  await once(socket, 'readable')
  take(64)
  return {
    get text() {
      return Buffer.concat(parts).toString()
    },
    sip: take,
    async drink() {
      socket.on('data', (part: Buffer) => parts.push(part)).resume()
      await ended
    },
    vanish: () => void socket.resetAndDestroy(),
  }
}
