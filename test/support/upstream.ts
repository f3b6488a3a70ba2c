import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { AgUiEvent, RunAgentInput } from '@holdfast/protocol'

/** One request that a runner made, and what the script does with it. */
export type Exchange = {
  readonly headers: IncomingHttpHeaders
  readonly input: RunAgentInput
  /** Events as server-sent events; the first of them sends the head of a good answer. */
  say(...events: AgUiEvent[]): void
  /** A comment: bytes that say nothing. */
  comment(): void
  /** The end of `opening`'s message, RUN_FINISHED, and the end of the response. */
  finish(): void
  /** The end of the response, whatever is missing. */
  end(): void
  /** A TCP reset. */
  reset(): void
  /** When (`performance.now()`) the other side, or the script, had closed the connection; null: it is open. */
  readonly closedAt: number | null
  /** Resolves when the connection is closed, with `closedAt`. */
  readonly closed: Promise<number>
}

export type Upstream = AsyncDisposable & {
  readonly url: string
  /** In the order of their arrival. */
  readonly exchanges: readonly Exchange[]
  /** The n-th exchange from 0, as soon as it has arrived. */
  exchange(n: number): Promise<Exchange>
}

/** An AG-UI agent over HTTP that does what `script` says, and nothing by itself: without one it is silent. */
export async function startUpstream(
  script: (exchange: Exchange, n: number) => void = () => undefined,
): Promise<Upstream> {
  const exchanges: Exchange[] = []
  const arrivals = new Set<() => void>()
  const sockets = new Set<Socket>()
  const server = createServer((request, response) => {
    let body = ''
    request.setEncoding('utf8').on('data', (part: string) => {
      body += part
    })
    request.on('end', () => {
      const input: RunAgentInput = JSON.parse(body)
      const exchange = openExchange(request.headers, input, request.socket, response)
      exchanges.push(exchange)
      for (const arrived of arrivals) arrived()
      script(exchange, exchanges.length - 1)
    })
  })
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.once('close', () => sockets.delete(socket))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/agent`,
    exchanges,
    async exchange(n) {
      for (;;) {
        const found = exchanges[n]
        if (found) return found
        await new Promise<void>((resolve) => arrivals.add(resolve))
      }
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function openExchange(
  headers: IncomingHttpHeaders,
  input: RunAgentInput,
  socket: Socket,
  response: ServerResponse,
): Exchange {
  const { promise: closed, resolve } = Promise.withResolvers<number>()
  let closedAt: number | null = null
  socket.once('close', () => {
    closedAt = performance.now()
    resolve(closedAt)
  })
  function say(...events: AgUiEvent[]) {
    if (socket.destroyed) return
    if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(events.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(''))
  }
  return {
    headers,
    input,
    say,
    comment: () => void response.write(': here\n\n'),
    finish() {
      const { threadId, runId } = input
      say(
        { type: 'TEXT_MESSAGE_END', messageId: 'm1' } as AgUiEvent,
        { type: 'RUN_FINISHED', threadId, runId } as AgUiEvent,
      )
      response.end()
    },
    end: () => void response.end(),
    reset: () => socket.resetAndDestroy(),
    get closedAt() {
      return closedAt
    },
    closed,
  }
}

/** RUN_STARTED and the beginning of the text message m1, left open. */
export function opening({ input }: Exchange, text: string): AgUiEvent[] {
  const { threadId, runId } = input
  return [
    { type: 'RUN_STARTED', threadId, runId },
    { type: 'TEXT_MESSAGE_START', messageId: 'm1', role: 'assistant' },
    { type: 'TEXT_MESSAGE_CONTENT', messageId: 'm1', delta: text },
  ] as AgUiEvent[]
}

/** Says `text` as a whole message and finishes. */
export function answer(exchange: Exchange, text: string): void {
  exchange.say(...opening(exchange, text))
  exchange.finish()
}
