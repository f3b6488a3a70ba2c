import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { wait } from '@holdfast/std'
import type { Random } from '../support/seeded.ts'
import type { Delivery } from './history.ts'

/** An endpoint for notifications that takes most of them. */
export type Sink = AsyncDisposable & { readonly name: string; readonly url: string }

export type SinkOptions = {
  name: string
  /** How often it fails although it got everything. */
  failing: number
  /** What notifications are signed with. */
  secret: string
  random: Random
  deliveries: Delivery[]
  /** The run's state, asked on the side. */
  stateOf: (runId: string) => Promise<string | null>
}

/** Writes down every delivery, and what whoever gets it would find if he looked at once. */
export async function openSink(options: SinkOptions): Promise<Sink> {
  const sockets = new Set<Socket>()
  /** What it failed once it takes the next time: a campaign is shorter than the later pauses between attempts. */
  const failed = new Set<string>()
  async function take(request: IncomingMessage, response: ServerResponse) {
    const parts: Buffer[] = []
    for await (const part of request) parts.push(part as Buffer)
    const text = Buffer.concat(parts).toString()
    const body = JSON.parse(text) as Record<string, unknown>
    const runId = String(body['runId'])
    const atMs = Date.now()
    const found = await options.stateOf(runId).catch(() => null)
    const eventId = String(body['eventId'])
    const failing = !failed.has(eventId) && options.random.chance(options.failing)
    if (failing) failed.add(eventId)
    const answered = failing ? options.random.pick([500, 503, 0]) : 204
    options.deliveries.push({
      sink: options.name,
      eventId,
      runId,
      state: String(body['state']),
      atMs,
      answered,
      signed: isSigned(request.headers, text, options.secret),
      found,
    })
    // The delivery is known here, and its sender will never hear of it.
    if (answered === 0) {
      request.socket.resetAndDestroy()
      return
    }
    if (options.random.chance(0.1)) await wait(options.random.whole(10, 500))
    response.writeHead(answered).end()
  }

  // A sender that dies in the middle has delivered nothing.
  const server = createServer((request, response) => {
    take(request, response).catch(() => response.destroy())
  })
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.once('close', () => sockets.delete(socket))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    name: options.name,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/${options.name}`,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

function isSigned(headers: IncomingHttpHeaders, text: string, secret: string): boolean {
  const signed = [headers['webhook-id'], headers['webhook-timestamp'], text].join('.')
  const signature = createHmac('sha256', secret).update(signed).digest('base64')
  return String(headers['webhook-signature']).split(' ').includes(`v1,${signature}`)
}
