// Goal: every answer of GET /runs/{id}/events. Method: a BFF of real processes, while the test itself is the
// runner, so that each log is exactly as long as the test says.
import type { AgUiEvent } from '@holdfast/protocol'
import { emptyFold, foldEvents } from '@holdfast/protocol'
import { type Lease, openWakeups, type Wakeups } from '@holdfast/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Frame, readEvents, request, type Sent, send } from '../support/api.ts'
import { append, claimOne, finish, message, recordAgents } from '../support/by-hand.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { connect, type Sql } from '../support/sql.ts'

let holdfast: Holdfast
let sql: Sql
let wakeups: Wakeups

beforeAll(async () => {
  holdfast = await startHoldfast({ runners: 0 })
  sql = await connect(holdfast.databaseUrl)
  const { databaseUrl } = holdfast
  wakeups = openWakeups({ databaseUrl, applicationName: 'test', onError() {} })
  await recordAgents(holdfast.store)
})

afterAll(async () => {
  await wakeups[Symbol.asyncDispose]()
  await sql[Symbol.asyncDispose]()
  await holdfast[Symbol.asyncDispose]()
})

type Running = Sent & { lease: Lease; length: number }

/** A run of 25 events that goes on: event 1, an open message and 23 words of it. */
async function startRun(more: Record<string, unknown> = {}): Promise<Running> {
  const sent = await send(holdfast.url, 'count', more)
  const { lease } = await claimOne(holdfast.store)
  expect(lease.runId).toBe(sent.runId)
  expect(await append(holdfast.store, lease, 1, message(`m-${sent.runId}`, 23))).toBe(true)
  return { ...sent, lease, length: 25 }
}

async function say(run: Running, word: string): Promise<void> {
  const event = { type: 'TEXT_MESSAGE_CONTENT', messageId: `m-${run.runId}`, delta: word }
  expect(await append(holdfast.store, run.lease, run.length, [event])).toBe(true)
  run.length += 1
  wakeups.publish('events', [run.runId])
}

async function end(run: Running): Promise<void> {
  const finished = await finish(holdfast.store, run.lease)
  if (finished.kind !== 'finished') throw new Error(finished.kind)
  run.length = finished.sequence
  wakeups.publish('events', [run.runId])
}

async function endedRun(more: Record<string, unknown> = {}): Promise<Running> {
  const run = await startRun(more)
  await end(run)
  return run
}

const urlOf = (run: Sent, query = '') => `${holdfast.url}/runs/${run.runId}/events${query}`
const ids = (frames: readonly Frame[]) => frames.map(({ id }) => id)
const range = (from: number, to: number) =>
  Array.from({ length: to - from + 1 }, (_, at) => from + at)

test.each([
  ['9', 10],
  ['10', 11],
  ['0', 1],
  ['24', 25],
])('the cursor %s gives exactly what follows it, and then what comes', async (cursor, from) => {
  const run = await startRun()
  for (const where of [{ lastEventId: cursor }, { after: Number(cursor) }]) {
    const due = run.length
    const reading = readEvents(holdfast.url, run.runId, {
      ...where,
      onFrame: ({ id }) => id === due && void say(run, 'more '),
      until: (frames) => frames.at(-1)?.id === due + 1,
    })
    expect(ids(await reading)).toEqual(range(from, due + 1))
  }
})

test('a cursor at the end of a live log waits for what comes', async () => {
  const run = await startRun()
  const response = await fetch(urlOf(run), { headers: { 'last-event-id': '25' } })
  expect(response.status).toBe(200)
  await say(run, 'more ')
  await end(run)
  const frames = (await response.text()).match(/^id: .*$/gm)
  expect(frames).toEqual(range(26, 28).map((id) => `id: ${id}`))
})

test.each(['-1', 'abc', '1e3', '9, 10', '1.0', '0x10', '99999999999999999999', '٩'])(
  'the cursor %s is refused with 400 and disturbs nobody',
  async (cursor) => {
    const run = await startRun()
    const headers = { 'last-event-id': cursor }
    const query = `?after=${encodeURIComponent(cursor)}`
    const answers = [await request(urlOf(run, query))]
    // What is no Latin-1 cannot be sent in a header.
    if (!/[^\0-\xff]/.test(cursor)) answers.push(await request(urlOf(run), { headers }))
    for (const { status, body } of answers) {
      expect([status, body['code']]).toEqual([400, 'invalid_request'])
      expect(body['errors']).toMatchObject([{ message: expect.any(String) }])
    }
    expect((await request(`${holdfast.url}/runs/${run.runId}`)).body).toMatchObject({
      state: 'running',
      sequence: 25,
    })
  },
)

test('the id of another run is no cursor, and a cursor counts for its run alone', async () => {
  const run = await startRun()
  const other = await send(holdfast.url, 'short')
  const refused = await request(urlOf(run), { headers: { 'last-event-id': other.runId } })
  expect(refused.status).toBe(400)
  const ahead = await request(urlOf(other), { headers: { 'last-event-id': '9' } })
  expect(ahead.status).toBe(409)
  await claimOne(holdfast.store)
})

test('a cursor beyond the log is refused with cursor_ahead, running or ended', async () => {
  const run = await startRun()
  for (const after of [26, 1_000_000]) {
    const { status, body } = await request(urlOf(run, `?after=${after}`))
    expect([status, body['code']]).toEqual([409, 'cursor_ahead'])
  }
  const ended = await endedRun()
  const { status, body } = await request(urlOf(ended, `?after=${ended.length + 1}`))
  expect([status, body['code']]).toEqual([409, 'cursor_ahead'])
})

test('the header wins over the query, and an empty one counts as none', async () => {
  const run = await endedRun()
  const both = await readEvents(holdfast.url, run.runId, { after: 3, lastEventId: 20 })
  expect(ids(both)).toEqual(range(21, run.length))
  const query = await readEvents(holdfast.url, run.runId, { after: 20, lastEventId: '' })
  expect(ids(query)).toEqual(range(21, run.length))
  const prelude = await readEvents(holdfast.url, run.runId, { lastEventId: '' })
  expect(prelude[0]).toMatchObject({ id: null, event: { type: 'RUN_STARTED' } })
  const twice = await request(urlOf(run, '?after=1&after=2'))
  expect(twice.status).toBe(400)
})

test('an ended run: 204 at its end, else the suffix and the end of the response', async () => {
  const run = await endedRun()
  for (const init of [{ headers: { 'last-event-id': `${run.length}` } }, {}]) {
    const response = await fetch(urlOf(run, `?after=${run.length}`), init)
    expect([response.status, await response.text()]).toEqual([204, ''])
  }
  for (const after of [0, 1, run.length - 1]) {
    const frames = await readEvents(holdfast.url, run.runId, { after })
    expect(ids(frames)).toEqual(range(after + 1, run.length))
    expect(frames.at(-1)?.event.type).toBe('RUN_FINISHED')
  }
})

test('a cursor behind a pruned log gets 410 with the floor, which works', async () => {
  const run = await endedRun()
  const prune = 'DELETE FROM holdfast.run_events WHERE run_id = $1 AND sequence <= $2'
  await sql(prune, [run.runId, 10])
  for (const after of [0, 9]) {
    const { status, body } = await request(urlOf(run, `?after=${after}`))
    expect([status, body['code'], body['floor']]).toEqual([410, 'cursor_gone', 10])
  }
  const frames = await readEvents(holdfast.url, run.runId, { after: 10 })
  expect(ids(frames)).toEqual(range(11, run.length))
  await sql(prune, [run.runId, run.length])
  const { status, body } = await request(urlOf(run, '?after=10'))
  expect([status, body['floor']]).toEqual([410, run.length])
  expect((await request(urlOf(run, `?after=${run.length}`))).status).toBe(204)
  const prelude = await readEvents(holdfast.url, run.runId)
  expect(prelude.at(-1)).toMatchObject({ id: run.length, event: { type: 'RUN_FINISHED' } })
})

function expectPrelude(frames: readonly Frame[], types: readonly string[], sequence: number) {
  expect(frames.map(({ event }) => event.type)).toEqual(types)
  expect(ids(frames)).toEqual([...types.slice(1).map(() => null), sequence])
}

function folded(frames: readonly Frame[]): unknown[] {
  const events = frames.map(({ event }) => event as AgUiEvent)
  return foldEvents(emptyFold(), events).messages
}

async function stored(run: Sent): Promise<unknown[]> {
  const { body } = await request(`${holdfast.url}/conversations/${run.conversationId}`)
  return (body['messages'] as { message: unknown }[]).map(({ message }) => message)
}

test('the prelude of a waiting run: what was asked, and its id at the last frame', async () => {
  const sent = await send(holdfast.url, 'count', { state: { a: 1 } })
  const types = ['RUN_STARTED', 'STATE_SNAPSHOT', 'MESSAGES_SNAPSHOT']
  const until = (frames: readonly Frame[]) => frames.length === types.length
  const frames = await readEvents(holdfast.url, sent.runId, { until })
  expectPrelude(frames, types, 1)
  expect(frames[1]?.event).toMatchObject({ snapshot: { a: 1 } })
  expect(folded(frames)).toEqual(await stored(sent))
  await finish(holdfast.store, (await claimOne(holdfast.store)).lease)
})

test('the prelude of a running run: the answer so far, what is open, and then live', async () => {
  const run = await startRun()
  const types = ['RUN_STARTED', 'MESSAGES_SNAPSHOT', 'TEXT_MESSAGE_START']
  const before = await stored(run)
  const frames = await readEvents(holdfast.url, run.runId, {
    onFrame: ({ id }) => id === 25 && void say(run, 'more ').then(() => end(run)),
  })
  expectPrelude(frames.slice(0, 3), types, 25)
  expect(folded(frames.slice(0, 3))).toEqual(before)
  expect(ids(frames.slice(3))).toEqual(range(26, 28))
  expect(folded(frames)).toEqual(await stored(run))
})

test('the prelude of an ended run is the whole conversation and its terminal event', async () => {
  const first = await endedRun()
  const run = await endedRun({ conversationId: first.conversationId })
  const types = ['RUN_STARTED', 'MESSAGES_SNAPSHOT', 'RUN_FINISHED']
  const frames = await readEvents(holdfast.url, run.runId)
  expectPrelude(frames, types, run.length)
  expect(folded(frames)).toEqual(await stored(run))
  expect(folded(await readEvents(holdfast.url, first.runId))).toHaveLength(2)
})

test('the answer is a plain stream that nothing may compress, keep or buffer', async () => {
  const run = await endedRun()
  const headers = { 'accept-encoding': 'gzip, br, deflate', accept: 'text/event-stream' }
  for (const query of ['', '?after=0']) {
    const response = await fetch(urlOf(run, query), { headers })
    expect(response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8')
    expect(response.headers.get('cache-control')).toBe('no-store, no-transform')
    expect(response.headers.get('x-accel-buffering')).toBe('no')
    expect(response.headers.get('content-encoding')).toBeNull()
    expect(response.headers.get('x-request-id')).toMatch(/./)
    const text = await response.text()
    expect(text).toMatch(/^retry: 1000\n/)
    expect(text).not.toMatch(/\r|^event:/m)
    const frames = text.split('\n\n').filter((block) => block.includes('data:'))
    for (const frame of frames) expect(frame).toMatch(/^(id: \d+\n)?data: \{.*\}$/)
  }
})

test('the head of the answer comes at once, also when nothing is said yet', async () => {
  const { runId } = await send(holdfast.url, 'nobody takes me yet')
  const sentAtMs = performance.now()
  const response = await fetch(`${holdfast.url}/runs/${runId}/events?after=1`)
  const reader = response.body?.getReader()
  const first = await reader?.read()
  expect(performance.now() - sentAtMs).toBeLessThan(8000)
  expect(new TextDecoder().decode(first?.value)).toMatch(/^retry: 1000\n/)
  await reader?.cancel()
  await finish(holdfast.store, (await claimOne(holdfast.store)).lease)
})

test('HEAD opens no stream', async () => {
  const run = await startRun()
  const response = await fetch(urlOf(run), { method: 'HEAD', signal: AbortSignal.timeout(3000) })
  expect(response.status).toBeLessThan(500)
  expect(await response.text()).toBe('')
})
