// Goal: what a caller brings is kept as far as a database can hold it, and deadlines only get shorter.
// Method: raw JSON over plain HTTP; agents whose limits are at both ends of what is allowed.
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Frame, readEvents, readLog, request, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'

const THIRTY_DAYS_MS = 30 * 86_400_000
const FAR = {
  deadlineMs: THIRTY_DAYS_MS,
  idleTimeoutMs: THIRTY_DAYS_MS,
  maxQueueMs: THIRTY_DAYS_MS,
}

let holdfast: Holdfast

beforeAll(async () => {
  holdfast = await startHoldfast({
    agents: {
      default: 'demo',
      agents: {
        demo: { type: 'demo' },
        brief: { type: 'demo', deadlineMs: 700 },
        patient: { type: 'demo', ...FAR },
      },
    },
  })
})

afterAll(() => holdfast[Symbol.asyncDispose]())

function text(frames: readonly Frame[]): string {
  const deltas = frames.map(({ event }) =>
    event.type === 'TEXT_MESSAGE_CONTENT' ? event.delta : '',
  )
  return deltas.join('')
}

function only(frames: readonly Frame[], type: string): unknown {
  return frames.find(({ event }) => event.type === type)?.event
}

async function postRaw(body: string | Buffer) {
  const headers = { 'content-type': 'application/json' }
  return await request(`${holdfast.url}/runs`, { method: 'POST', body: body as BodyInit, headers })
}

test('NUL, lone surrogates and broken UTF-8 become U+FFFD, the same everywhere', async () => {
  const clientTurnId = randomUUID()
  const head = String.raw`{"clientTurnId":"${clientTurnId}","message":"a\u0000b\ud800c\udc00d \ud83d\ude00 `
  const tail = String.raw`","context":[{"description":"\u0000","value":"\ud800"}],"state":{"k\u0000":"\udfff"},
    "forwardedProps":{"\ud800":["\u0000"]},"tools":[{"name":"t\u0000","description":"\ud800"}]}`
  const raw = Buffer.concat([Buffer.from(head), Buffer.from([0xff]), Buffer.from(tail)])
  const said = 'a\uFFFDb\uFFFDc\uFFFDd 😀 \uFFFD'
  const answer = await postRaw(raw)
  expect(answer.status).toBe(202)
  const runId = String(answer.body['runId'])
  const log = await readLog(holdfast.url, runId)
  expect(only(log, 'RUN_STARTED')).toMatchObject({ input: { messages: [{ content: said }] } })
  expect(text(log)).toContain(`You said: “${said}”.`)
  const { body } = await request(
    `${holdfast.url}/conversations/${String(answer.body['conversationId'])}`,
  )
  const messages = body['messages'] as { message: { content: string } }[]
  expect(messages[0]?.message.content).toBe(said)
  expect(body['title']).toBe(said)
  const prelude = await readEvents(holdfast.url, runId)
  expect(only(prelude, 'MESSAGES_SNAPSHOT')).toMatchObject({
    messages: [{ content: said }, { content: text(log) }],
  })
  expect((await postRaw(raw)).body).toMatchObject({ runId, state: 'succeeded' })
})

test.each([
  ['the turn', { clientTurnId: 'a\u0000b\uD800' }, 202],
  ['content parts', { message: [{ type: 'text', text: '\u0000' }] }, 202],
  ['the agent', { agent: 'demo\u0000' }, 422],
  ['the conversation', { conversationId: '\uD800' }, 404],
  ['notifyUrl', { notifyUrl: 'http://127.0.0.1/\u0000' }, 202],
  ['onActive', { onActive: 'enqueue\u0000' }, 400],
  ['an unknown field', { 'x\u0000': '\u0000' }, 202],
])('NUL in %s is no failure of ours', async (_name, more, status) => {
  const json = { message: '/long 1', clientTurnId: randomUUID(), ...more }
  const answer = await request(`${holdfast.url}/runs`, { json })
  expect(answer.status).toBe(status)
})

test('NUL in an address is no failure of ours', async () => {
  const paths = ['/runs/%00', '/runs?agent=%00', '/runs?conversationId=%00', '/runs?cursor=%00']
  paths.push('/runs/%00/events', '/conversations/%00', '/conversations?cursor=%ED%A0%80')
  for (const path of paths) {
    const { status } = await request(`${holdfast.url}${path}`)
    expect([path, status < 500]).toEqual([path, true])
  }
})

test('long Unicode text comes back as it was sent', async () => {
  const message = `/long 1 ${'日本語 👩‍👩‍👧‍👦 é\r\n\t\\"'.repeat(2000)}`
  const { runId, conversationId } = await send(holdfast.url, message)
  const log = await readLog(holdfast.url, runId)
  expect(only(log, 'RUN_STARTED')).toMatchObject({ input: { messages: [{ content: message }] } })
  const { body } = await request(`${holdfast.url}/conversations/${conversationId}`)
  expect(body['messages']).toMatchObject([{ message: { content: message } }, {}])
})

test('content parts are kept as they are, ids and metadata included', async () => {
  const message = [
    { type: 'text', text: 'look', metadata: { a: [1, null] } },
    { type: 'image', source: { type: 'url', value: 'https://x.example/y.png' } },
  ]
  const { runId, conversationId } = await send(holdfast.url, message)
  await readLog(holdfast.url, runId)
  const { body } = await request(`${holdfast.url}/conversations/${conversationId}`)
  expect(body['messages']).toMatchObject([{ message: { content: message } }, {}])
})

test('context and state reach the agent', async () => {
  const context = [{ description: 'page', value: 'home' }]
  const { runId } = await send(holdfast.url, '/state', { context, state: { mine: 1 } })
  const log = await readLog(holdfast.url, runId)
  expect(text(log)).toContain('Your page told me 1 thing about where we are.')
  expect(only(log, 'STATE_SNAPSHOT')).toMatchObject({ snapshot: { mine: 1 } })
})

test('a deadline ends the run as deadline_exceeded and keeps what was said, as partial', async () => {
  const { runId, conversationId } = await send(holdfast.url, '/slow 20', { deadlineMs: 900 })
  const log = await readLog(holdfast.url, runId)
  expect(log.at(-1)?.event).toMatchObject({ type: 'RUN_ERROR', code: 'deadline_exceeded' })
  expect(text(log)).not.toBe('')
  const { body: run } = await request(`${holdfast.url}/runs/${runId}`)
  expect(run).toMatchObject({
    state: 'failed',
    outcome: 'error',
    error: { code: 'deadline_exceeded', message: expect.any(String) },
  })
  const lastedMs = Date.parse(String(run['finishedAt'])) - Date.parse(String(run['startedAt']))
  expect(lastedMs).toBeGreaterThanOrEqual(900)
  expect(lastedMs).toBeLessThan(15_000)
  const { body } = await request(`${holdfast.url}/conversations/${conversationId}`)
  expect(body['messages']).toMatchObject([
    { status: 'complete' },
    { status: 'partial', message: { content: text(log) } },
  ])
})

test("a caller cannot raise the agent's deadline", async () => {
  const { runId } = await send(holdfast.url, '/slow 20', { agent: 'brief', deadlineMs: 60_000 })
  const log = await readLog(holdfast.url, runId)
  expect(log.at(-1)?.event).toMatchObject({ type: 'RUN_ERROR', code: 'deadline_exceeded' })
})

test('a deadline of thirty days overflows no timer, whoever sets it', async () => {
  const runs = [
    await send(holdfast.url, '/long 5', { deadlineMs: THIRTY_DAYS_MS }),
    await send(holdfast.url, '/long 5', { deadlineMs: THIRTY_DAYS_MS, agent: 'patient' }),
    await send(holdfast.url, '/long 5', { agent: 'patient' }),
  ]
  for (const { runId } of runs) {
    const log = await readLog(holdfast.url, runId)
    expect(log.at(-1)?.event).toMatchObject({ type: 'RUN_FINISHED' })
  }
})
