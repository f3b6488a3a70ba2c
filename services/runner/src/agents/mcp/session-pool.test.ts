import { once } from 'node:events'
import { createServer, type RequestListener, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import { pino } from 'pino'
import { expect, onTestFinished, test } from 'vitest'
import { sessionPool } from './session-pool.ts'

const WHOM = {
  tenantId: 'acme',
  userId: 'ada',
  conversationId: 'conversation',
  runId: 'run',
  epoch: 1,
}
const never = new AbortController().signal

async function serverThat(answer: RequestListener): Promise<string> {
  const server = createServer(answer).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`
}

function poolOf(url: string, more: { openMode?: boolean; openTimeoutMs?: number } = {}) {
  const { openMode = true, openTimeoutMs = 5000 } = more
  const pool = sessionPool({
    servers: { tools: { url, headers: {} } },
    outbound: { allow: [], openMode },
    connectTimeoutMs: 1000,
    openTimeoutMs,
    log: pino({ level: 'silent' }),
  })
  onTestFinished(() => pool.close())
  return pool
}

/** A server that takes everybody in; the rest is answered by `others`, or not at all. */
function initialises(
  others: (method: string, response: ServerResponse, id: number | undefined) => unknown,
): RequestListener {
  return async (request, response) => {
    const { id, method = '' } = request.method === 'POST' ? ((await json(request)) as Asked) : {}
    if (method !== 'initialize') return void others(method, response, id)
    const result = {
      protocolVersion: '2025-06-18',
      capabilities: { tools: {} },
      serverInfo: { name: 'slow', version: '1' },
    }
    response
      .writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': 'one' })
      .end(JSON.stringify({ jsonrpc: '2.0', id, result }))
  }
}

type Asked = { id?: number; method?: string }

const failureOf = (pool: ReturnType<typeof poolOf>, signal = never) =>
  pool
    .lend('tools', WHOM, signal, (session) => session.tools(signal))
    .then(
      () => undefined,
      (error: unknown) => error,
    )

test('a server at a private address is refused unless it is allowed', async () => {
  let asked = 0
  const url = await serverThat((_request, response) => {
    asked += 1
    response.writeHead(500).end()
  })
  const failure = await failureOf(poolOf(url, { openMode: false }))
  expect(failure).toMatchObject({ name: 'McpFailure', kind: 'refused' })
  expect(asked).toBe(0)
})

test('a redirect is not followed, wherever it leads', async () => {
  const paths: string[] = []
  const url = await serverThat((request, response) => {
    paths.push(request.url ?? '')
    response.writeHead(307, { location: '/elsewhere' }).end()
  })
  expect(await failureOf(poolOf(url))).toMatchObject({ name: 'McpFailure' })
  expect(paths).toEqual(['/mcp'])
})

test('a server that never answers costs its time limit, and one that cannot be reached nothing', async () => {
  const silent = await serverThat(() => undefined)
  expect(await failureOf(poolOf(silent, { openTimeoutMs: 100 }))).toMatchObject({
    name: 'McpFailure',
  })
  const gone = createServer().listen(0, '127.0.0.1')
  await once(gone, 'listening')
  const { port } = gone.address() as AddressInfo
  gone.close()
  await once(gone, 'close')
  const unreachable = poolOf(`http://127.0.0.1:${port}/mcp`)
  expect(await failureOf(unreachable)).toMatchObject({ kind: 'refused' })
})

test('whoever stops waiting for a session leaves at once, with their own reason', async () => {
  const arrived = Promise.withResolvers<void>()
  const silent = await serverThat(() => arrived.resolve())
  const leaving = new AbortController()
  const pool = poolOf(silent, { openTimeoutMs: 60_000 })
  const failed = failureOf(pool, leaving.signal)
  await arrived.promise
  const reason = new Error('cancel')
  leaving.abort(reason)
  expect(await failed).toBe(reason)
  const begunAt = performance.now()
  await pool.close()
  expect(performance.now() - begunAt).toBeLessThan(2000)
})

test('whoever waits for a session that somebody else opens leaves at once as well', async () => {
  const arrived = Promise.withResolvers<void>()
  const pool = poolOf(await serverThat(() => arrived.resolve()), { openTimeoutMs: 60_000 })
  const first = failureOf(pool)
  await arrived.promise
  const leaving = new AbortController()
  const second = failureOf(pool, leaving.signal)
  const reason = new Error('cancel')
  leaving.abort(reason)
  expect(await Promise.race([second, first])).toBe(reason)
  await pool.close()
  expect(await first).toMatchObject({ name: 'McpFailure' })
})

test('a session whose beginning is never confirmed is not waited for, and leaves nothing', async () => {
  const url = await serverThat(initialises(() => undefined))
  const pool = poolOf(url, { openTimeoutMs: 200 })
  expect(await failureOf(pool)).toMatchObject({ name: 'McpFailure' })
})

test('whoever stops waiting for the list of tools leaves at once; a server that hangs is left behind', async () => {
  const listed = Promise.withResolvers<void>()
  const closed = Promise.withResolvers<void>()
  const url = await serverThat(
    initialises((method, response) => {
      if (method === 'notifications/initialized') return response.writeHead(202).end()
      if (method !== 'tools/list') return undefined
      response.once('close', closed.resolve)
      return listed.resolve()
    }),
  )
  const leaving = new AbortController()
  const pool = poolOf(url, { openTimeoutMs: 60_000 })
  const failed = failureOf(pool, leaving.signal)
  await listed.promise
  const reason = new Error('cancel')
  leaving.abort(reason)
  expect(await failed).toBe(reason)
  await pool.close()
  await closed.promise
})

test('an endless answer is cut at its cap', async () => {
  const url = await serverThat((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    const part = `data: ${'x'.repeat(1 << 20)}`
    const more = () => {
      while (!response.destroyed && response.write(part));
      if (!response.destroyed) response.once('drain', more)
    }
    more()
  })
  expect(await failureOf(poolOf(url))).toMatchObject({ name: 'McpFailure', kind: 'lost' })
})

test('what a server says of itself may be long, but a message that never ends is cut at its cap', async () => {
  const cut = Promise.withResolvers<void>()
  const comments = 48
  let parts = 0
  const tools = [{ name: 'one', inputSchema: { type: 'object' } }]
  const url = await serverThat((request, response) => {
    if (request.method !== 'GET') return others(request, response)
    response.once('close', cut.resolve).writeHead(200, { 'content-type': 'text/event-stream' })
    const megabyte = 'x'.repeat(1 << 20)
    const next = () => {
      parts += 1
      return response.write(parts <= comments ? `: ${megabyte}\n\n` : `data: ${megabyte}\n`)
    }
    const more = () => {
      while (!response.destroyed && next());
      if (!response.destroyed) response.once('drain', more)
    }
    return more()
  })
  const others = initialises((method, response, id) => {
    if (method === 'notifications/initialized') return response.writeHead(202).end()
    const answer = JSON.stringify({ jsonrpc: '2.0', id, result: { tools } })
    return response.writeHead(200, { 'content-type': 'application/json' }).end(answer)
  })
  const pool = poolOf(url)
  const found = await pool.lend('tools', WHOM, never, (session) => session.tools(never))
  expect(found).toHaveLength(1)
  await cut.promise
  expect(parts).toBeGreaterThan(comments)
})

test('a server that is no program is not there', async () => {
  const pool = sessionPool({
    servers: { tools: { command: '/no/such/program', args: [], env: {} } },
    outbound: { allow: [], openMode: true },
    connectTimeoutMs: 1000,
    openTimeoutMs: 1000,
    log: pino({ level: 'silent' }),
  })
  expect(await failureOf(pool)).toMatchObject({ name: 'McpFailure', kind: 'refused' })
  await pool.close()
})
