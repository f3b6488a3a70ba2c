import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http'
import { type AddressInfo, createServer as createTcpServer, type Socket } from 'node:net'
import { setImmediate as nextTurn, setTimeout as wait } from 'node:timers/promises'

export type Script = {
  /** 0: no answer at all, only the ending. */
  status?: number
  headers?: Record<string, string>
  body?: Uint8Array
  /** The body is written in pieces of this size. */
  pieceBytes?: number
  /** The body in pieces of any size, in place of the two. */
  parts?: readonly Uint8Array[]
  /** How long it waits before each of them. */
  everyMs?: number
  ending?: 'end' | 'cut' | 'reset' | 'hang' | 'keep-alive'
  /** What the ending waits for. */
  before?: Promise<void>
  /** Called when all but the ending was written. */
  onWritten?: () => void
}

export type ReceivedRequest = { headers: IncomingHttpHeaders; url: string; body: string }

export type ScriptedUpstream = AsyncDisposable & {
  readonly url: string
  readonly requests: ReceivedRequest[]
  /** Resolves when somebody has connected. */
  connected(): Promise<void>
  /** Resolves when no connection is open any more and at least one was. */
  allClosed(): Promise<void>
}

/** An HTTP server that answers every request by the script. */
export async function scriptedUpstream(script: Script): Promise<ScriptedUpstream> {
  const requests: ReceivedRequest[] = []
  const server = createServer((request, response) => {
    answer(script, request, response, requests).catch((error: unknown) => {
      server.emit('error', error)
    })
  })
  return listening(server, requests)
}

async function answer(
  script: Script,
  request: IncomingMessage,
  response: ServerResponse,
  requests: ReceivedRequest[],
): Promise<void> {
  let body = ''
  request.setEncoding('utf8')
  for await (const part of request) body += String(part)
  requests.push({ headers: request.headers, url: request.url ?? '', body })
  const { status = 200, ending = 'end' } = script
  const socket = request.socket
  if (status !== 0) {
    response.writeHead(status, { 'content-type': 'text/event-stream', ...script.headers })
    response.flushHeaders()
    for (const piece of pieces(script)) {
      // One at a time, so that they arrive as they were cut.
      await (script.everyMs === undefined ? nextTurn() : wait(script.everyMs))
      if (socket.destroyed) break
      response.write(piece)
    }
  }
  script.onWritten?.()
  await script.before
  if (ending === 'end') response.end()
  else if (ending === 'cut') socket.end()
  else if (ending === 'reset') socket.resetAndDestroy()
  else if (ending === 'keep-alive') {
    const timer = setInterval(() => response.write(': hold\n\n'), 40)
    socket.once('close', () => clearInterval(timer))
  }
}

/** A server that accepts connections and never says a word. */
export async function silentServer(): Promise<ScriptedUpstream> {
  // Reading is what lets it notice that the other side has closed.
  return listening(
    createTcpServer((socket) => socket.resume()),
    [],
  )
}

async function listening(
  server: Server | ReturnType<typeof createTcpServer>,
  requests: ReceivedRequest[],
): Promise<ScriptedUpstream> {
  const closes: Promise<void>[] = []
  const sockets = new Set<Socket>()
  const connected = Promise.withResolvers<void>()
  server.on('connection', (socket: Socket) => {
    sockets.add(socket)
    connected.resolve()
    socket.on('error', () => socket.destroy())
    const { promise, resolve } = Promise.withResolvers<void>()
    closes.push(promise)
    socket.once('close', () => {
      sockets.delete(socket)
      resolve()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/agent?x=1`,
    requests,
    connected: () => connected.promise,
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

function* pieces({ body, pieceBytes, parts }: Script): Iterable<Uint8Array> {
  if (parts) yield* parts.filter((part) => part.byteLength > 0)
  if (!body || body.byteLength === 0) return
  const size = pieceBytes ?? body.byteLength
  for (let at = 0; at < body.byteLength; at += size) yield body.subarray(at, at + size)
}
