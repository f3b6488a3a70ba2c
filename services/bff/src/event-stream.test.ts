import { connect, type Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { fastifySSE } from '@fastify/sse'
import { frame } from '@holdfast/protocol'
import Fastify, { type FastifyInstance } from 'fastify'
import { afterEach, beforeEach, expect, test } from 'vitest'
import {
  type EventStream,
  SSE_ROUTE,
  type StreamRegistry,
  serveEventStream,
  streamRegistry,
} from './event-stream.ts'

let app: FastifyInstance
let registry: StreamRegistry
let port: number
/** Resolves when the route's handler is over, whatever became of the socket. */
let handled: Promise<void>

async function serve(body: (stream: EventStream) => Promise<void>, drainMs = 60_000) {
  const over = Promise.withResolvers<void>()
  handled = over.promise
  app.get('/', SSE_ROUTE, async (_request, reply) => {
    await serveEventStream(reply, { registry, drainMs }, 'retry: 1000\n\n', body).then(
      over.resolve,
      over.reject,
    )
    return undefined
  })
  await app.listen({ port: 0 })
  const address = app.server.address()
  port = typeof address === 'object' && address ? address.port : 0
}

/** A client that asks and then reads only if it is told to. */
function ask(): Socket {
  const socket = connect(port, '127.0.0.1')
  socket.on('error', () => {})
  socket.pause()
  socket.write('GET / HTTP/1.1\r\nhost: x\r\n\r\n')
  return socket
}

/** Writes until the socket's buffers are full; gives what the last write said. */
async function flood(stream: EventStream): Promise<boolean> {
  while (await stream.write(frame(1, `"${'x'.repeat(1 << 20)}"`)));
  return false
}

beforeEach(async () => {
  registry = streamRegistry()
  app = Fastify()
  await app.register(fastifySSE)
})
afterEach(() => app.close())

test('sends headers of earlier hooks, the first bytes at once, and ends with its handler', async () => {
  app.addHook('onRequest', async (_request, reply) => {
    reply.header('access-control-allow-origin', 'https://app.example')
  })
  await serve(async (stream) => {
    await stream.write(frame(0, '{"a":1}') + frame(null, '{}'))
  })
  const response = await fetch(`http://127.0.0.1:${port}/`)
  expect(Object.fromEntries(response.headers)).toMatchObject({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store, no-transform',
    'x-accel-buffering': 'no',
    'access-control-allow-origin': 'https://app.example',
  })
  expect(await response.text()).toBe('retry: 1000\n\nid: 0\ndata: {"a":1}\n\ndata: {}\n\n')
  expect(registry.open).toBe(0)
})

test('the first bytes leave before the body has anything to say', async () => {
  const release = Promise.withResolvers<void>()
  await serve(() => release.promise)
  const response = await fetch(`http://127.0.0.1:${port}/`)
  const reader = response.body?.getReader()
  const first = await reader?.read()
  expect(new TextDecoder().decode(first?.value)).toBe('retry: 1000\n\n')
  release.resolve()
  expect((await reader?.read())?.done).toBe(true)
})

test('HEAD finds nothing, instead of an answer that never ends', async () => {
  await serve(() => new Promise(() => {}))
  const response = await fetch(`http://127.0.0.1:${port}/`, { method: 'HEAD' })
  expect(response.status).toBe(404)
})

test('a write that waits for a reader settles when that reader vanishes', async () => {
  const flooding = Promise.withResolvers<void>()
  let last: boolean | undefined
  await serve(async (stream) => {
    flooding.resolve()
    last = await flood(stream)
  })
  const socket = ask()
  await flooding.promise
  socket.destroy()
  await handled
  expect(last).toBe(false)
  expect(registry.open).toBe(0)
})

test('a reader that takes nothing for too long is closed', async () => {
  let last: boolean | undefined
  await serve(async (stream) => {
    last = await flood(stream)
  }, 5)
  const socket = ask()
  const closed = new Promise((resolve) => socket.once('close', resolve))
  await handled
  expect(last).toBe(false)
  socket.resume()
  await closed
})

test('a reader that is waited for again and again collects no listeners', async () => {
  const warnings: string[] = []
  const onWarning = ({ name }: Error) => warnings.push(name)
  process.on('warning', onWarning)
  await serve(async (stream) => {
    for (let n = 1; n <= 30; n += 1) await stream.write(frame(n, `"${'x'.repeat(1 << 20)}"`))
  })
  const socket = ask()
  socket.resume()
  await handled
  // Warnings are told in a later turn of the loop.
  await new Promise((resolve) => setImmediate(resolve))
  process.off('warning', onWarning)
  expect(warnings).toEqual([])
})

test('a vanished reader aborts the signal, and later writes say so', async () => {
  const waiting = Promise.withResolvers<void>()
  let late: boolean | undefined
  await serve(async (stream) => {
    waiting.resolve()
    await new Promise((resolve) => stream.signal.addEventListener('abort', resolve))
    late = await stream.write(':\n\n')
  })
  const socket = ask()
  await waiting.promise
  socket.destroy()
  await handled
  expect(late).toBe(false)
})

test('a drain lets every stream say goodbye and end, and lets the server close', async () => {
  const waiting = Promise.withResolvers<void>()
  await serve(async (stream) => {
    waiting.resolve()
    await new Promise((resolve) => stream.signal.addEventListener('abort', resolve))
    await stream.write('retry: 700\n\n')
  })
  const response = await fetch(`http://127.0.0.1:${port}/`)
  await waiting.promise
  registry.drain()
  expect(await response.text()).toBe('retry: 1000\n\nretry: 700\n\n')
  await app.close()
})

test('a drain also cuts a reader that does not take what it is owed', async () => {
  const flooding = Promise.withResolvers<void>()
  let last: boolean | undefined
  await serve(async (stream) => {
    flooding.resolve()
    last = await flood(stream)
  })
  ask()
  await flooding.promise
  registry.drain()
  await handled
  expect(last).toBe(false)
})

test('a stream that begins during a drain is told at once', async () => {
  registry.drain()
  await serve(async (stream) => {
    expect(stream.signal.aborted).toBe(true)
  })
  const response = await fetch(`http://127.0.0.1:${port}/`)
  expect(await text(response.body as never)).toBe('retry: 1000\n\n')
})
