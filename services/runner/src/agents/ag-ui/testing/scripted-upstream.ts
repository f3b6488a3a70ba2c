import { createServer, type IncomingHttpHeaders, type Server } from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net'

export type Script = {
  /** 0: no answer at all, only the ending. */
  status?: number
  headers?: Record<string, string>
  body?: Uint8Array
  /** The body is written in pieces of this size. */
  pieceBytes?: number
  ending?: 'end' | 'cut' | 'reset' | 'hang' | 'keep-alive'
  /** What the ending waits for. */
  before?: Promise<void>
}

export type ReceivedRequest = { headers: IncomingHttpHeaders; url: string; body: string }

export type ScriptedUpstream = AsyncDisposable & {
  readonly url: string
  readonly requests: ReceivedRequest[]
  /** Resolves when no connection is open any more and at least one was. */
  allClosed(): Promise<void>
}

/** An HTTP server that answers every request by the script. */
export async function scriptedUpstream(script: Script): Promise<ScriptedUpstream> {
  const requests: ReceivedRequest[] = []
  const server = createServer(async (request, response) => {
    let body = ''
    request.setEncoding('utf8')
    for await (const part of request) body += part
    requests.push({ headers: request.headers, url: request.url ?? '', body })
    const { status = 200, ending = 'end' } = script
    const socket = request.socket
    if (status !== 0) {
      response.writeHead(status, { 'content-type': 'text/event-stream', ...script.headers })
      response.flushHeaders()
      for (const piece of pieces(script)) response.write(piece)
    }
    await script.before
    if (ending === 'end') response.end()
    else if (ending === 'cut') socket.end()
    else if (ending === 'reset') socket.resetAndDestroy()
    else if (ending === 'keep-alive') {
      const timer = setInterval(() => response.write(': hold\n\n'), 40)
      socket.once('close', () => clearInterval(timer))
    }
  })
  return listening(server, requests)
}

/** A server that accepts connections and never says a word. */
export async function silentServer(): Promise<ScriptedUpstream> {
  return listening(createTcpServer(), [])
}

async function listening(
  server: Server | ReturnType<typeof createTcpServer>,
  requests: ReceivedRequest[],
): Promise<ScriptedUpstream> {
  const closes: Promise<void>[] = []
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    const { promise, resolve } = Promise.withResolvers<void>()
    closes.push(promise)
    socket.once('close', () => {
      sockets.delete(socket)
      resolve()
    })
    socket.resume()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/agent?x=1`,
    requests,
    async allClosed() {
      if (closes.length === 0) throw new Error('nobody connected')
      await Promise.all(closes)
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function* pieces({ body, pieceBytes }: Script): Iterable<Uint8Array> {
  if (!body || body.byteLength === 0) return
  const size = pieceBytes ?? body.byteLength
  for (let at = 0; at < body.byteLength; at += size) yield body.subarray(at, at + size)
}
