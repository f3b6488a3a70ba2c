import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'

/** One attempt to tell this endpoint of a run. */
export type Told = {
  readonly path: string
  readonly headers: IncomingHttpHeaders
  /** As it came over the wire, which is what is signed. */
  readonly text: string
  readonly body: {
    readonly eventId: string
    readonly type: string
    readonly runId: string
    readonly [field: string]: unknown
  }
  answer(status: number, headers?: Record<string, string>): void
  /** A TCP reset. */
  reset(): void
  /** Whether the other side, or this one, has closed the connection. */
  readonly isClosed: boolean
}

export type WebhookSink = AsyncDisposable & {
  /** Without a path. */
  readonly url: string
  /** In the order of their arrival. */
  readonly told: readonly Told[]
  /** The attempts for which this is true, as soon as there are `count` of them. */
  seen(what: (told: Told) => boolean, count?: number): Promise<Told[]>
  of(runId: string, count?: number): Promise<Told[]>
}

/** An endpoint that confirms everything, unless `script` says otherwise; one that does nothing hangs. */
export async function startWebhookSink(
  script: (told: Told, nth: number) => unknown = (told) => told.answer(200),
): Promise<WebhookSink> {
  const told: Told[] = []
  const arrivals = new Set<() => void>()
  const sockets = new Set<Socket>()
  const server = createServer((request, response) => {
    let text = ''
    request.setEncoding('utf8').on('data', (part: string) => {
      text += part
    })
    request.on('end', () => {
      const { headers, socket, url: path = '/' } = request
      const one = openTold({ headers, text, path }, socket, response)
      const earlier = told.filter(({ body }) => body.runId === one.body.runId)
      told.push(one)
      script(one, earlier.length)
      for (const arrived of arrivals) arrived()
      arrivals.clear()
    })
  })
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.once('close', () => sockets.delete(socket))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  async function seen(what: (each: Told) => boolean, count = 1): Promise<Told[]> {
    for (;;) {
      const found = told.filter(what)
      if (found.length >= count) return found
      await new Promise<void>((resolve) => arrivals.add(resolve))
    }
  }
  return {
    url: `http://127.0.0.1:${port}`,
    told,
    seen,
    of: (runId, count) => seen(({ body }) => body.runId === runId, count),
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function openTold(
  request: Pick<Told, 'headers' | 'text' | 'path'>,
  socket: Socket,
  response: ServerResponse,
): Told {
  return {
    ...request,
    body: JSON.parse(request.text),
    answer: (status, headers = {}) => void response.writeHead(status, headers).end('noted'),
    reset: () => socket.resetAndDestroy(),
    get isClosed() {
      return socket.destroyed
    },
  }
}
