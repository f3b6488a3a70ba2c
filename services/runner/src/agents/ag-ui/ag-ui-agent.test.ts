import { parseAgentsFile } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { recordedRun } from '../testing/recorded-run.ts'
import { type Script, scriptedUpstream, silentServer } from '../testing/scripted-upstream.ts'
import { retryAfterMs } from '../upstream/http-failure.ts'
import { createAgUiAgent } from './ag-ui-agent.ts'

const OPEN = { allow: [], openMode: true }
const FRAME = 'data: {"type":"TEXT_MESSAGE_CHUNK","messageId":"a","delta":"Hi"}\n\n'
const FINISHED = 'data: {"type":"RUN_FINISHED","threadId":"t","runId":"r"}\n\n'

function agentAt(url: string, more: object = {}, outbound = OPEN) {
  const spec = parseAgentsFile({ agents: { a: { type: 'ag-ui', url, ...more } } }, {}).agents.a
  if (spec?.type !== 'ag-ui') throw new Error('expected an ag-ui agent')
  return createAgUiAgent(spec, { outbound })
}

const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  )

test('the request is the run in AG-UI’s words, and says who it is for', async () => {
  await using upstream = await scriptedUpstream({ body: Buffer.from(FINISHED) })
  const run = recordedRun({
    epoch: 2,
    userId: 'Zoë\r\nx: y 100%',
    forwardedProps: { theme: 'dark', holdfast: { user: 'somebody else' } },
    context: [{ description: 'page', value: '/' }],
    tools: [{ name: 'open', description: 'opens' }],
  })
  const headers = {
    Authorization: 'Bearer k',
    'x-who': '{tenant}/{user}',
    'x-run': '{conversationId} {runId} {attempt} {other}',
  }
  await agentAt(upstream.url, { headers }).run(run)
  const [request] = upstream.requests
  expect(request?.url).toBe('/agent?x=1')
  expect(request?.headers).toMatchObject({
    authorization: 'Bearer k',
    'x-who': 'tenant/Zo%C3%AB%0D%0Ax:%20y%20100%25',
    'x-run': 'conversation run 2 {other}',
    'idempotency-key': 'run',
    accept: 'text/event-stream',
    'accept-encoding': 'identity',
    'content-type': 'application/json',
  })
  expect(JSON.parse(request?.body ?? '')).toEqual({
    threadId: 'conversation',
    runId: 'run.2',
    protocolVersion: '1.0',
    state: {},
    messages: [{ id: 'u1', role: 'user', content: 'hello' }],
    tools: [{ name: 'open', description: 'opens' }],
    context: [{ description: 'page', value: '/' }],
    forwardedProps: {
      theme: 'dark',
      holdfast: { tenant: 'tenant', user: 'Zoë\r\nx: y 100%' },
    },
  })
})

const stages: [string, Script][] = [
  ['before the answer', { status: 0, ending: 'hang' }],
  ['after its head', { ending: 'hang' }],
  ['between events', { body: Buffer.from(FRAME), ending: 'hang' }],
  ['in the middle of an event', { body: Buffer.from(`${FRAME}data: {"ty`), ending: 'hang' }],
]

test.each(stages)(
  'an abort %s ends the attempt at once, with its socket closed',
  async (_, script) => {
    const reached = Promise.withResolvers<void>()
    await using upstream = await scriptedUpstream({
      ...script,
      onWritten: reached.resolve,
    })
    const run = recordedRun()
    const failed = failureOf(agentAt(upstream.url).run(run))
    await reached.promise
    if (script.body) await run.emitted(2)
    const reason = new Error('cancel')
    run.abort.abort(reason)
    expect(await failed).toBe(reason)
    run.expectNoListeners()
    await upstream.allClosed()
  },
)

test('an abort while the connection is being made ends the attempt at once', async () => {
  await using upstream = await silentServer()
  const run = recordedRun()
  const failed = failureOf(agentAt(upstream.url.replace('http:', 'https:')).run(run))
  await upstream.connected()
  run.abort.abort(new Error('drain'))
  expect(await failed).toMatchObject({ message: 'drain' })
  run.expectNoListeners()
  await upstream.allClosed()
})

test('a connection that is not made in time may be tried again', async () => {
  await using upstream = await silentServer()
  const agent = agentAt(upstream.url.replace('http:', 'https:'), { connectTimeoutMs: 50 })
  const failure = await failureOf(agent.run(recordedRun()))
  expect(failure).toMatchObject({ code: 'upstream_timeout', retryable: true })
  await upstream.allClosed()
})

test('a refused connection may be tried again', async () => {
  const upstream = await silentServer()
  await upstream[Symbol.asyncDispose]()
  const failure = await failureOf(agentAt(upstream.url).run(recordedRun()))
  expect(failure).toMatchObject({ code: 'upstream_error', retryable: true })
})

test('a run that is over before it begins asks nobody', async () => {
  await using upstream = await scriptedUpstream({ body: Buffer.from(FINISHED) })
  const run = recordedRun()
  run.abort.abort(new Error('cancel'))
  expect(await failureOf(agentAt(upstream.url).run(run))).toMatchObject({ message: 'cancel' })
  const lost = recordedRun({
    assertHeld() {
      throw new Error('lease lost')
    },
  })
  expect(await failureOf(agentAt(upstream.url).run(lost))).toMatchObject({ message: 'lease lost' })
  expect(upstream.requests).toEqual([])
})

test('a lease that ends while the connection is made sends nothing', async () => {
  await using upstream = await scriptedUpstream({ body: Buffer.from(FINISHED) })
  let asked = 0
  const run = recordedRun({
    assertHeld() {
      asked += 1
      if (asked > 1) throw new Error('lease lost')
    },
  })
  expect(await failureOf(agentAt(upstream.url).run(run))).toMatchObject({ message: 'lease lost' })
  await upstream.allClosed()
  expect(upstream.requests).toEqual([])
})

test.each([
  'http://127.0.0.1:9/',
  'http://localhost:9/',
  'http://[::ffff:127.0.0.1]:9/',
  'http://0x7f.1:9/',
])('a private upstream is refused unless it is allowed: %s', async (url) => {
  const closed = { allow: [], openMode: false }
  const failure = await failureOf(agentAt(url, {}, closed).run(recordedRun()))
  expect(failure).toMatchObject({ code: 'upstream_error', retryable: false })
  expect(failure).toMatchObject({ cause: { name: 'OutboundRefused' } })
})

test('time that our own log takes is not the upstream’s silence', async () => {
  const go = Promise.withResolvers<void>()
  await using upstream = await scriptedUpstream({ body: Buffer.from(FRAME), before: go.promise })
  const run = recordedRun()
  const slow = {
    ...run,
    async emit(events: Parameters<typeof run.emit>[0]) {
      await new Promise((resolve) => setTimeout(resolve, 200))
      await run.emit(events)
      go.resolve()
    },
  }
  const limits = { idleTimeoutMs: 100, progressTimeoutMs: 100 }
  const failure = await failureOf(agentAt(upstream.url, limits).run(slow))
  expect(failure).toMatchObject({ code: 'upstream_truncated' })
})

test('Retry-After is read in seconds and as a date', () => {
  const now = Date.parse('2026-01-01T00:00:00Z')
  expect(retryAfterMs('3', now)).toBe(3000)
  expect(retryAfterMs('2592001', now)).toBe(2_592_001_000)
  expect(retryAfterMs('Thu, 01 Jan 2026 00:00:05 GMT', now)).toBe(5000)
  expect(retryAfterMs('Wed, 31 Dec 2025 00:00:00 GMT', now)).toBe(0)
  expect(retryAfterMs('soon', now)).toBeUndefined()
  expect(retryAfterMs(undefined, now)).toBeUndefined()
})
