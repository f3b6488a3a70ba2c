// Goal: every answer of POST /runs. Method: one Holdfast of real processes, plain HTTP, and SQL to see traces.
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Answer, readEvents, readLog, request, type Sent, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { connect, type Sql } from '../support/sql.ts'

const V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/
const UNKNOWN = '01900000-0000-7000-8000-000000000000'

let holdfast: Holdfast
let sql: Sql

beforeAll(async () => {
  holdfast = await startHoldfast()
  sql = await connect(holdfast.databaseUrl)
})

afterAll(async () => {
  await sql[Symbol.asyncDispose]()
  await holdfast[Symbol.asyncDispose]()
})

function post(json: unknown, headers: Record<string, string> = {}): Promise<Answer> {
  return request(`${holdfast.url}/runs`, { json, headers })
}

function postRaw(body: string | Buffer, contentType = 'application/json'): Promise<Answer> {
  const init = { method: 'POST', body: body as BodyInit, headers: { 'content-type': contentType } }
  return request(`${holdfast.url}/runs`, init)
}

function turn(more: Record<string, unknown> = {}) {
  return { message: '/long 3', clientTurnId: randomUUID(), ...more }
}

/** All rows that an accepted turn writes; answers under way do not count. */
async function traces(): Promise<unknown> {
  const tables = ['conversations', 'runs', 'run_inputs', 'client_turns']
  const counts = tables.map((table) => `(SELECT count(*)::int FROM holdfast.${table}) AS ${table}`)
  const said = `(SELECT count(*)::int FROM holdfast.conversation_messages WHERE index = 0) AS said`
  return await sql(`SELECT ${[...counts, said].join(', ')}`)
}

function sentOf({ body }: Answer): Sent {
  return { runId: String(body['runId']), conversationId: String(body['conversationId']) }
}

function expectProblem(answer: Answer, status: number, code: string): void {
  expect(answer.body).toMatchObject({ status, code })
  expect(answer.status).toBe(status)
  expect(answer.headers.get('content-type')).toBe('application/problem+json')
  for (const field of ['type', 'title', 'detail'] as const) {
    expect(answer.body[field]).toEqual(expect.any(String))
  }
}

test('a turn is accepted with 202, its address and its links', async () => {
  const answer = await post(turn())
  const { runId } = sentOf(answer)
  expect(answer.status).toBe(202)
  expect(answer.body).toEqual({
    runId: expect.stringMatching(V7),
    conversationId: expect.stringMatching(V7),
    state: 'queued',
    sequence: 1,
    links: {
      self: `/runs/${runId}`,
      events: `/runs/${runId}/events`,
      cancel: `/runs/${runId}/cancel`,
    },
  })
  expect(answer.headers.get('location')).toBe(`/runs/${runId}`)
  await readLog(holdfast.url, runId)
})

test('a turn in a conversation of ours continues it', async () => {
  const first = await send(holdfast.url, '/long 2')
  await readLog(holdfast.url, first.runId)
  const second = await send(holdfast.url, 'and now?', { conversationId: first.conversationId })
  expect(second.conversationId).toBe(first.conversationId)
  const text = (await readLog(holdfast.url, second.runId)).map(({ event }) =>
    event.type === 'TEXT_MESSAGE_CONTENT' ? event.delta : '',
  )
  expect(text.join('')).toContain('This is turn 2 of our conversation.')
})

test('a repeat is the same run: while it runs, after it ended, and after a newer one', async () => {
  const body = turn({ message: '/slow 20', context: [{ description: 'page', value: 'home' }] })
  const first = await post(body)
  const { runId, conversationId } = sentOf(first)
  const sameInOtherWords = {
    context: [{ value: 'home', description: 'page' }],
    conversationId,
    onActive: 'cancel',
    deadlineMs: 1000,
    resume: null,
    clientTurnId: body.clientTurnId,
    message: body.message,
  }
  const running = await post(sameInOtherWords)
  expect([first.status, running.status]).toEqual([202, 200])
  expect(running.body).toMatchObject({ runId, conversationId, links: first.body['links'] })
  expect(running.headers.get('location')).toBe(`/runs/${runId}`)
  await request(`${holdfast.url}/runs/${runId}/cancel?wait=10`, { json: {} })
  const ended = await post(body)
  expect(ended.body).toMatchObject({ runId, state: 'stopped' })
  const newer = await send(holdfast.url, '/slow 20', { conversationId })
  const late = await post(body)
  expect([ended.status, late.status]).toEqual([200, 200])
  expect(late.body).toMatchObject({ runId, state: 'stopped', sequence: ended.body['sequence'] })
  await request(`${holdfast.url}/runs/${newer.runId}/cancel?wait=10`, { json: {} })
})

test('a repeat leaves no second trace', async () => {
  const body = turn()
  const { runId } = sentOf(await post(body))
  await readLog(holdfast.url, runId)
  const before = await traces()
  expect((await post(body)).status).toBe(200)
  expect(await traces()).toEqual(before)
})

test('the same turn with another body is refused as turn_mismatch', async () => {
  const { conversationId: other } = await send(holdfast.url, '/long 1')
  const body = turn({ message: 'one', agent: 'demo', context: [{ description: 'a', value: 'b' }] })
  await readLog(holdfast.url, String((await post(body)).body['runId']))
  const before = await traces()
  const changes = [
    { message: 'two' },
    { message: [{ type: 'text', text: 'one' }] },
    { agent: 'another' },
    { context: [] },
    { context: [{ description: 'a', value: 'c' }] },
    { conversationId: other },
    { conversationId: UNKNOWN },
  ]
  for (const change of changes) {
    expectProblem(await post({ ...body, ...change }), 422, 'turn_mismatch')
  }
  expect(await traces()).toEqual(before)
  expect((await post(body)).status).toBe(200)
})

test('a busy conversation refuses with the lowest unfinished run, and keeps no trace', async () => {
  const first = await send(holdfast.url, '/slow 20')
  const { conversationId } = first
  const second = await send(holdfast.url, '/long 1', { conversationId, onActive: 'enqueue' })
  const refused = turn({ conversationId })
  const before = await traces()
  const answer = await post(refused)
  expectProblem(answer, 409, 'conversation_busy')
  expect(answer.body['activeRunId']).toBe(first.runId)
  expect(await traces()).toEqual(before)
  await request(`${holdfast.url}/runs/${first.runId}/cancel`, { json: {} })
  await readLog(holdfast.url, second.runId)
  expect((await post(refused)).status).toBe(202)
})

test.each([
  ['no body', {}, ['clientTurnId']],
  ['no message', { clientTurnId: 't' }, ['message']],
  ['an empty message', turn({ message: '' }), ['message']],
  ['a message that is a number', turn({ message: 5 }), ['message']],
  ['no content parts', turn({ message: [] }), ['message']],
  ['a content part of no kind', turn({ message: [{ type: 'sound' }] }), ['message']],
  ['an empty turn', turn({ clientTurnId: '' }), ['clientTurnId']],
  ['a turn of 129 characters', turn({ clientTurnId: 'x'.repeat(129) }), ['clientTurnId']],
  ['a turn that is a number', turn({ clientTurnId: 7 }), ['clientTurnId']],
  ['an unknown onActive', turn({ onActive: 'later' }), ['onActive']],
  ['a deadline of nothing', turn({ deadlineMs: 0 }), ['deadlineMs']],
  ['a negative deadline', turn({ deadlineMs: -1 }), ['deadlineMs']],
  ['a broken deadline', turn({ deadlineMs: 1.5 }), ['deadlineMs']],
  ['a deadline in words', turn({ deadlineMs: '10' }), ['deadlineMs']],
  ['a conversation that is no text', turn({ conversationId: 5 }), ['conversationId']],
  ['an empty agent', turn({ agent: '' }), ['agent']],
  ['context without value', turn({ context: [{ description: 'd' }] }), ['context.0.value']],
  ['tools without description', turn({ tools: [{ name: 'n' }] }), ['tools.0.description']],
  ['two mistakes', turn({ message: 5, onActive: 'later' }), ['message', 'onActive']],
  ['a foreign notifyUrl', turn({ notifyUrl: 'https://evil.example/' }), ['notifyUrl']],
  ['a notifyUrl in no web scheme', turn({ notifyUrl: 'ftp://127.0.0.1/' }), ['notifyUrl']],
  ['a notifyUrl with a password', turn({ notifyUrl: 'http://a:b@127.0.0.1/' }), ['notifyUrl']],
  ['a notifyUrl that is none', turn({ notifyUrl: 'here' }), ['notifyUrl']],
])('400 names what is wrong: %s', async (_name, body, paths) => {
  const before = await traces()
  const answer = await post(body)
  expectProblem(answer, 400, 'invalid_request')
  const errors = answer.body['errors'] as { path: string; message: string }[]
  expect(errors.map(({ path }) => path)).toEqual(expect.arrayContaining(paths))
  expect(errors.every(({ message }) => message.length > 0)).toBe(true)
  expect(await traces()).toEqual(before)
})

test.each([
  ['broken JSON', '{"message":'],
  ['a list', '[]'],
  ['a text', '"hello"'],
  ['null', 'null'],
  ['nothing', ''],
  [
    'too deep',
    `{"message":"x","clientTurnId":"deep","state":${'['.repeat(5000)}${']'.repeat(5000)}}`,
  ],
])('400 for a body that is %s', async (_name, body) => {
  const answer = await postRaw(body)
  expectProblem(answer, 400, 'invalid_request')
  expect(answer.body['errors']).toEqual([{ path: expect.any(String), message: expect.any(String) }])
})

test('415 for anything but JSON', async () => {
  const body = JSON.stringify(turn())
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/jsonx']) {
    expectProblem(await postRaw(body, type), 415, 'unsupported_media_type')
  }
  expect((await postRaw(body, 'application/json; charset=utf-8')).status).toBe(202)
})

test('413 for a message over 1 MiB, counted in bytes', async () => {
  const before = await traces()
  const tooMuch = ['x'.repeat((1 << 20) + 1), 'é'.repeat((1 << 19) + 1)]
  for (const message of tooMuch) {
    expectProblem(await post(turn({ message })), 413, 'message_too_large')
  }
  const parts = Array.from({ length: 3 }, () => ({ type: 'text', text: 'x'.repeat(400_000) }))
  expectProblem(await post(turn({ message: parts })), 413, 'message_too_large')
  expect(await traces()).toEqual(before)
  const fits = await post(turn({ message: `/long 1 ${'x'.repeat((1 << 20) - 100)}` }))
  expect(fits.status).toBe(202)
  await readLog(holdfast.url, String(fits.body['runId']))
})

test('413 for a body of any size reaches whoever is still sending it', async () => {
  const bodies = Array.from({ length: 10 }, (_, at) => Buffer.alloc((5 + 5 * at) << 20, 'x'))
  for (const body of bodies) expectProblem(await postRaw(body), 413, 'body_too_large')
  const headers = { 'content-type': 'application/json' }
  const body = new Blob([Buffer.alloc(30 << 20, 'x')]).stream()
  const init = { method: 'POST', headers, body, duplex: 'half' }
  const chunked = await request(`${holdfast.url}/runs`, init)
  expectProblem(chunked, 413, 'body_too_large')
})

test('413 conversation_full when the messages would pass 8 MiB, and a smaller one still fits', async () => {
  const { runId, conversationId } = await send(holdfast.url, '/long 1')
  await readLog(holdfast.url, runId)
  await sql('UPDATE holdfast.conversations SET bytes = $2 WHERE id = $1', [
    conversationId,
    (8 << 20) - 2000,
  ])
  const refused = turn({ conversationId, message: `/long 1 ${'x'.repeat(2000)}` })
  const before = await traces()
  expectProblem(await post(refused), 413, 'conversation_full')
  expect(await traces()).toEqual(before)
  const small = await send(holdfast.url, '/long 1', { conversationId })
  await readLog(holdfast.url, small.runId)
})

test('422 for an agent that was never recorded, 404 for a conversation that is not there', async () => {
  const gone = await send(holdfast.url, '/long 1')
  await readLog(holdfast.url, gone.runId)
  await request(`${holdfast.url}/conversations/${gone.conversationId}`, { method: 'DELETE' })
  const before = await traces()
  expectProblem(await post(turn({ agent: 'nobody' })), 422, 'unknown_agent')
  for (const conversationId of [UNKNOWN, 'x', '', gone.conversationId]) {
    expectProblem(await post(turn({ conversationId })), 404, 'not_found')
  }
  expect(await traces()).toEqual(before)
})

test('303 to the events for a caller that wants a stream, also when it repeats', async () => {
  const body = turn()
  const accept = { accept: 'text/event-stream' }
  const first = await post(body, accept)
  const { runId } = sentOf(first)
  expect(first.status).toBe(303)
  expect(first.headers.get('location')).toBe(`/runs/${runId}/events`)
  const again = await post(body, accept)
  expect([again.status, again.headers.get('location')]).toEqual([303, `/runs/${runId}/events`])
  const followed = await fetch(`${holdfast.url}/runs`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...accept },
    body: JSON.stringify(body),
  })
  expect(followed.headers.get('content-type')).toBe('text/event-stream; charset=utf-8')
  expect(await followed.text()).toContain('"type":"RUN_FINISHED"')
  expect((await post(body, { accept: '*/*' })).status).toBe(200)
})

test('410 turn_gone when the run of a turn was deleted', async () => {
  const body = turn()
  const { runId, conversationId } = sentOf(await post(body))
  await readLog(holdfast.url, runId)
  await request(`${holdfast.url}/conversations/${conversationId}`, { method: 'DELETE' })
  expectProblem(await post(body), 410, 'turn_gone')
  expectProblem(await post({ ...body, message: 'other' }), 410, 'turn_gone')
})

test('a loopback notifyUrl is taken in open mode', async () => {
  const notifyUrl = 'http://127.0.0.1:9/hook'
  const answer = await post(turn({ notifyUrl }))
  expect(answer.status).toBe(202)
  const inputs = await sql('SELECT notify_url FROM holdfast.run_inputs WHERE run_id = $1', [
    answer.body['runId'],
  ])
  expect(inputs).toEqual([{ notify_url: notifyUrl }])
})

test('every answer carries x-request-id, and a given one is kept', async () => {
  const { runId } = await send(holdfast.url, '/long 1')
  const { length } = await readLog(holdfast.url, runId)
  const paths = ['/', '/healthz', '/readyz', '/metrics', '/openapi.json', '/docs', '/nowhere']
  paths.push('/runs', `/runs/${runId}`, '/runs/x', `/runs/${runId}/events`, '/%zz', '/runners')
  paths.push(`/runs/${runId}/events?after=${length}`, `/runs/${runId}/events?after=no`)
  for (const path of paths) {
    const answer = await request(`${holdfast.url}${path}`)
    expect([path, answer.headers.get('x-request-id')]).toEqual([path, expect.stringMatching(/./)])
    const headers = { 'x-request-id': 'mine-1' }
    const named = await request(`${holdfast.url}${path}`, { headers })
    expect([path, named.headers.get('x-request-id')]).toEqual([path, 'mine-1'])
  }
  for (const answer of [await post({}), await post(turn()), await postRaw('x', 'text/plain')]) {
    expect(answer.headers.get('x-request-id')).toMatch(/./)
  }
  await readEvents(holdfast.url, runId)
})
