import { randomUUID } from 'node:crypto'
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { Server } from '@modelcontextprotocol/sdk/server/index.js'
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js'

/** One call of a tool, which waits until the test answers it. */
export type ToolCall = {
  readonly name: string
  readonly arguments: Record<string, unknown>
  readonly meta: Record<string, unknown>
  readonly headers: IncomingHttpHeaders
  answer(text: string): void
  /** When the server was told that nobody wants the answer any more. */
  readonly cancelled: Promise<number>
  /** When the connection that waits for the answer was closed. */
  readonly closed: Promise<number>
}

export type ToolServer = AsyncDisposable & {
  readonly url: string
  /** In the order of their arrival. */
  readonly calls: readonly ToolCall[]
  call(n: number): Promise<ToolCall>
  /** How many sessions were opened. */
  readonly sessions: number
  /** Forgets all sessions and drops all connections, as a restart does. */
  restart(): void
}

/** `pay` says nothing of itself; `look` only reads. */
const TOOLS = [
  { name: 'pay', inputSchema: { type: 'object' as const } },
  { name: 'look', inputSchema: { type: 'object' as const }, annotations: { readOnlyHint: true } },
]

/** An MCP server over Streamable HTTP whose answers the test gives. */
export async function startToolServer(): Promise<ToolServer> {
  const calls: ToolCall[] = []
  const arrivals = new Set<() => void>()
  const sessions = new Map<string, StreamableHTTPServerTransport>()
  const sockets = new Set<Socket>()
  let opened = 0

  async function open(): Promise<StreamableHTTPServerTransport> {
    opened += 1
    const transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: () => randomUUID(),
      onsessioninitialized: (id) => void sessions.set(id, transport),
    })
    const server = new Server({ name: 'tools', version: '1.0.0' }, { capabilities: { tools: {} } })
    server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: TOOLS }))
    server.setRequestHandler(CallToolRequestSchema, async ({ params }, extra) => {
      const answered = Promise.withResolvers<string>()
      const cancelled = Promise.withResolvers<number>()
      extra.signal.addEventListener('abort', () => cancelled.resolve(performance.now()))
      calls.push({
        name: params.name,
        arguments: params.arguments ?? {},
        meta: params._meta ?? {},
        headers: extra.requestInfo?.headers ?? {},
        answer: answered.resolve,
        cancelled: cancelled.promise,
        closed: closings.get(Number(extra.requestId)) ?? Promise.reject(new Error('no connection')),
      })
      for (const arrived of arrivals) arrived()
      return { content: [{ type: 'text', text: await answered.promise }] }
    })
    await server.connect(transport as Transport)
    return transport
  }

  const closings = new Map<number, Promise<number>>()
  async function handle(request: IncomingMessage, response: ServerResponse) {
    const body = request.method === 'POST' ? await jsonOf(request) : undefined
    const id = request.headers['mcp-session-id']
    const known = sessions.get(String(id))
    if (id !== undefined && !known) {
      response.writeHead(404).end()
      return
    }
    if (body?.method === 'tools/call') {
      const closed = Promise.withResolvers<number>()
      response.once('close', () => closed.resolve(performance.now()))
      closings.set(body.id, closed.promise)
    }
    await (known ?? (await open())).handleRequest(request, response, body)
  }

  const server = createServer((request, response) => {
    handle(request, response).catch((error: unknown) => server.emit('error', error))
  })
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.once('close', () => sockets.delete(socket))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const drop = () => {
    sessions.clear()
    for (const socket of sockets) socket.destroy()
  }
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    calls,
    async call(n) {
      for (;;) {
        const found = calls[n]
        if (found) return found
        await new Promise<void>((resolve) => arrivals.add(resolve))
      }
    },
    get sessions() {
      return opened
    },
    restart: drop,
    async [Symbol.asyncDispose]() {
      drop()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

async function jsonOf(request: IncomingMessage): Promise<{ method: string; id: number }> {
  let text = ''
  for await (const part of request.setEncoding('utf8')) text += String(part)
  return JSON.parse(text)
}
