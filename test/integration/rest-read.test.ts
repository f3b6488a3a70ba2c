// Goal: what can be asked about runs and the service, and what a cancel answers. Method: one Holdfast of real
// processes, plain HTTP.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readEvents, readLog, request, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'

const NOBODY = '01900000-0000-7000-8000-000000000000'
/** A word every 60 ms, for a minute. */
const SLOW = '/long 1000 /slow 60'
const ISO = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)

let holdfast: Holdfast

beforeAll(async () => {
  holdfast = await startHoldfast({
    agents: { default: 'demo', agents: { demo: { type: 'demo' }, other: { type: 'demo' } } },
  })
})

afterAll(() => holdfast[Symbol.asyncDispose]())

const get = (path: string) => request(`${holdfast.url}${path}`)

function cancel(runId: string, query = '', json: unknown = {}) {
  return request(`${holdfast.url}/runs/${runId}/cancel${query}`, { json })
}

async function untilItSpeaks(runId: string) {
  const until = (frames: readonly unknown[]) => frames.length > 4
  await readEvents(holdfast.url, runId, { after: 0, until })
}

test('a run that has ended well has the whole shape', async () => {
  const { runId, conversationId } = await send(holdfast.url, '/long 2')
  const { length } = await readLog(holdfast.url, runId)
  const { status, body } = await get(`/runs/${runId}`)
  expect(status).toBe(200)
  expect(body).toEqual({
    runId,
    conversationId,
    agent: 'demo',
    state: 'succeeded',
    outcome: 'success',
    epoch: 1,
    attemptsUsed: 1,
    sequence: length,
    createdAt: ISO,
    startedAt: ISO,
    finishedAt: ISO,
    cancelRequestedAt: null,
    error: null,
    result: null,
    usage: [],
    attempts: [
      {
        epoch: 1,
        runner: holdfast.runners[0]?.bootId,
        startedAt: ISO,
        endedAt: ISO,
        outcome: 'succeeded',
      },
    ],
    inDoubt: [],
    artifacts: [],
  })
})

test('a running, a waiting, a failed and a stopped run say so', async () => {
  const running = await send(holdfast.url, SLOW)
  const { conversationId } = running
  const waiting = await send(holdfast.url, '/long 1', { conversationId, onActive: 'enqueue' })
  await untilItSpeaks(running.runId)
  const open = { outcome: null, finishedAt: null, cancelRequestedAt: null, error: null }
  expect((await get(`/runs/${running.runId}`)).body).toMatchObject({
    ...open,
    state: 'running',
    startedAt: ISO,
    attempts: [{ epoch: 1, endedAt: null, outcome: null }],
  })
  expect((await get(`/runs/${waiting.runId}`)).body).toMatchObject({
    ...open,
    state: 'queued',
    epoch: 0,
    attemptsUsed: 0,
    sequence: 1,
    startedAt: null,
    attempts: [],
  })
  await cancel(waiting.runId)
  await cancel(running.runId, '?wait=10')
  expect((await get(`/runs/${running.runId}`)).body).toMatchObject({
    state: 'stopped',
    outcome: 'cancelled',
    cancelRequestedAt: ISO,
    error: null,
    attempts: [{ outcome: 'stopped', endedAt: ISO }],
  })
  const failing = await send(holdfast.url, '/long 1 /fail')
  await readLog(holdfast.url, failing.runId)
  expect((await get(`/runs/${failing.runId}`)).body).toMatchObject({
    state: 'failed',
    outcome: 'error',
    error: { code: 'agent_error', message: 'The agent failed.' },
    attempts: [{ outcome: 'failed' }],
  })
})

test('what is no run is not found', async () => {
  for (const id of [NOBODY, 'x', '1', NOBODY.replaceAll('-', ''), 'a'.repeat(500)]) {
    for (const path of ['', '/events', '/events?after=0', '/why', '/timeline']) {
      const answer = await get(`/runs/${id}${path}`)
      expect([id, path, answer.status]).toEqual([id, path, 404])
      expect(answer.headers.get('content-type')).toBe('application/problem+json')
    }
    expect((await cancel(id)).status).toBe(404)
  }
})

test('an id is found in upper case too', async () => {
  const { runId } = await send(holdfast.url, '/long 1')
  await readLog(holdfast.url, runId)
  expect((await get(`/runs/${runId.toUpperCase()}`)).body).toMatchObject({ runId })
})

test('runs are listed newest first, filtered, page by page, each exactly once', async () => {
  const mine: string[] = []
  for (const agent of ['demo', 'other', 'demo', 'other', 'demo']) {
    const { runId } = await send(holdfast.url, '/long 1', { agent })
    await readLog(holdfast.url, runId)
    mine.unshift(runId)
  }
  const { runId, conversationId } = await send(holdfast.url, '/long 1 /fail', { agent: 'other' })
  await readLog(holdfast.url, runId)
  mine.unshift(runId)

  async function idsOf(query: string): Promise<unknown[]> {
    const { status, body } = await get(`/runs?${query}`)
    expect(status).toBe(200)
    return (body['runs'] as { runId: string }[]).map((run) => run.runId)
  }
  expect((await idsOf('limit=6')).slice(0, 6)).toEqual(mine)
  expect(await idsOf('agent=other&limit=3')).toEqual([mine[0], mine[2], mine[4]])
  expect(await idsOf('state=failed&limit=1')).toEqual([runId])
  expect(await idsOf(`conversationId=${conversationId}`)).toEqual([runId])
  expect(await idsOf(`conversationId=${conversationId}&state=succeeded`)).toEqual([])
  expect(await idsOf('agent=nobody')).toEqual([])
  expect(await idsOf(`conversationId=${NOBODY}`)).toEqual([])
  expect(await idsOf('conversationId=x')).toEqual([])
  expect((await idsOf('all=true&limit=1')).at(0)).toBe(runId)

  const paged: unknown[] = []
  let query = 'limit=2'
  for (;;) {
    const { body } = await get(`/runs?${query}`)
    paged.push(...(body['runs'] as { runId: string }[]).map((run) => run.runId))
    if (body['nextCursor'] === null) break
    query = `limit=2&cursor=${encodeURIComponent(body['nextCursor'] as string)}`
  }
  expect(paged).toEqual(await idsOf('limit=100'))
  expect((await get(`/runs/${mine[1]}`)).body).toEqual(
    ((await get('/runs?limit=2')).body['runs'] as unknown[])[1],
  )
})

test.each(['limit=0', 'limit=101', 'limit=two', 'state=done', 'cursor=nowhere', 'all=maybe'])(
  'a list is refused with 400: %s',
  async (query) => {
    const { status, body } = await get(`/runs?${query}`)
    expect([status, body['code']]).toEqual([400, 'invalid_request'])
    expect(body['errors']).toMatchObject([{ path: query.split('=')[0] }])
  },
)

test('the timeline of a run tells its wait, its attempt and the step that it took', async () => {
  const { runId, conversationId } = await send(holdfast.url, '/tool weather /long 1')
  await readLog(holdfast.url, runId)
  const { status, body } = await get(`/runs/${runId}/timeline`)
  expect(status).toBe(200)
  const span = { parent: null, start: ISO, end: ISO, outcome: 'done' }
  expect(body).toEqual({
    runId,
    state: 'succeeded',
    attempts: [
      {
        epoch: 1,
        runner: holdfast.runners[0]?.bootId,
        reason: 'first',
        startedAt: ISO,
        endedAt: ISO,
        outcome: 'succeeded',
      },
    ],
    spans: [
      { ...span, key: 'queue', kind: 'queue', epoch: 0 },
      { ...span, key: 'demo_lookup', kind: 'tool', epoch: 1 },
    ],
    leaseGaps: [],
    staleWrites: [],
  })
  const queued = await send(holdfast.url, SLOW, { conversationId })
  const waiting = await send(holdfast.url, '/long 1', { conversationId, onActive: 'enqueue' })
  expect((await get(`/runs/${waiting.runId}/timeline`)).body).toMatchObject({
    state: 'queued',
    attempts: [],
    spans: [{ key: 'queue', end: null, outcome: null }],
  })
  await cancel(waiting.runId)
  await cancel(queued.runId, '?wait=10')
})

test('a cancel is accepted with 202, and repeating it, also when it is late, is no error', async () => {
  const { runId } = await send(holdfast.url, SLOW)
  await untilItSpeaks(runId)
  const first = await cancel(runId, '', { reason: 'enough' })
  expect(first.status).toBe(202)
  expect(first.body).toEqual({ runId, state: 'running', cancelRequestedAt: ISO })
  const again = await cancel(runId, '?wait=10')
  const { cancelRequestedAt } = first.body
  expect(again.status).toBe(200)
  expect(again.body).toEqual({ runId, state: 'stopped', cancelRequestedAt })
  const late = await cancel(runId)
  expect([late.status, late.body]).toEqual([200, again.body])
  const { length } = await readLog(holdfast.url, runId)
  expect((await get(`/runs/${runId}`)).body).toMatchObject({ sequence: length, cancelRequestedAt })
})

test('a cancel of a run that succeeded answers with its success and changes nothing', async () => {
  const { runId } = await send(holdfast.url, '/long 2')
  const log = await readLog(holdfast.url, runId)
  const before = (await get(`/runs/${runId}`)).body
  const answer = await cancel(runId)
  expect(answer.status).toBe(200)
  expect(answer.body).toEqual({ runId, state: 'succeeded', cancelRequestedAt: null })
  expect((await get(`/runs/${runId}`)).body).toEqual(before)
  expect(await readLog(holdfast.url, runId)).toEqual(log)
})

test('?wait answers when the run has ended, and every caller gets the same end', async () => {
  const { runId } = await send(holdfast.url, SLOW)
  await untilItSpeaks(runId)
  const answers = await Promise.all(Array.from({ length: 10 }, () => cancel(runId, '?wait=20')))
  expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(200))
  for (const { body } of answers) expect(body).toEqual(answers[0]?.body)
  expect(answers[0]?.body).toMatchObject({ state: 'stopped' })
})

test('?wait gives up with 202 when nobody is there to end the run', async () => {
  await using alone = await startHoldfast()
  const { runId } = await send(alone.url, SLOW)
  const url = `${alone.url}/runs/${runId}`
  await readEvents(alone.url, runId, { after: 0, until: (frames) => frames.length > 4 })
  alone.runners[0]?.kill('SIGSTOP')
  const answer = await request(`${url}/cancel?wait=0.3`, { json: {} })
  alone.runners[0]?.kill('SIGCONT')
  expect(answer).toMatchObject({ status: 202, body: { state: 'running' } })
  await readLog(alone.url, runId)
  expect((await request(url)).body).toMatchObject({ state: 'stopped' })
})

test('a cancel needs no body, and refuses a wrong one', async () => {
  const { runId } = await send(holdfast.url, SLOW)
  const url = `${holdfast.url}/runs/${runId}/cancel`
  expect((await cancel(runId, '', { reason: 5 })).status).toBe(400)
  expect((await cancel(runId, '?wait=31')).status).toBe(400)
  expect((await cancel(runId, '?wait=-1')).status).toBe(400)
  expect((await get(`/runs/${runId}`)).body).toMatchObject({ cancelRequestedAt: null })
  expect([200, 202]).toContain((await request(url, { method: 'POST' })).status)
  const empty = { method: 'POST', headers: { 'content-type': 'application/json' } }
  expect([200, 202]).toContain((await request(url, empty)).status)
  await readLog(holdfast.url, runId)
})
