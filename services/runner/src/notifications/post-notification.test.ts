import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { postNotification } from './post-notification.ts'

const OPEN = { allow: [], openMode: true }
const CLOSED = { allow: [], openMode: false }
const { signal } = new AbortController()

async function serve(listener: RequestListener) {
  const server = createServer(listener)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    port,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

const post = (endpoint: string, outbound = OPEN, until = signal) =>
  postNotification({ id: 'e1', body: '{}', endpoint }, null, outbound, until)

test.each(['127.0.0.1', 'localhost', '[::ffff:127.0.0.1]'])(
  '%s is private and is not asked; that is final',
  async (host) => {
    let asked = 0
    await using server = await serve((_request, response) => {
      asked += 1
      response.end()
    })
    const outcome = await post(`http://${host}:${server.port}/`, CLOSED)
    expect(outcome).toMatchObject({ kind: 'refused', status: null, final: true })
    expect(asked).toBe(0)
  },
)

test.each([
  ['an endless body', (write: () => void) => setInterval(write, 1)],
  ['a body that never comes', () => undefined],
])('%s does not take a confirmation back', async (_what, begin) => {
  let timer: NodeJS.Timeout | undefined
  await using server = await serve((_request, response) => {
    response.writeHead(202).flushHeaders()
    timer = begin(() => response.write('x'.repeat(65_536)))
    response.on('close', () => clearInterval(timer))
  })
  const outcome = await post(`http://127.0.0.1:${server.port}/`)
  expect(outcome).toEqual({ kind: 'confirmed', status: 202 })
})

test('an attempt that is cut closes its connection', async () => {
  const closed = Promise.withResolvers<void>()
  await using server = await serve((request) => {
    request.socket.once('close', () => closed.resolve())
    cut.abort(new Error('enough'))
  })
  const cut = new AbortController()
  const sending = post(`http://127.0.0.1:${server.port}/`, OPEN, cut.signal)
  await expect(sending).rejects.toThrow('enough')
  await closed.promise
})

test('a port that nobody listens on is worth another attempt', async () => {
  const server = await serve(() => undefined)
  await server[Symbol.asyncDispose]()
  expect(await post(`http://127.0.0.1:${server.port}/`)).toEqual({
    kind: 'refused',
    status: null,
    error: 'not reached: ECONNREFUSED',
    final: false,
  })
})
