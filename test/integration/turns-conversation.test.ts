// Goal: a conversation as its owner sees, renames, lists and deletes it. Method: one Holdfast of real
// processes; SQL only to see that what was deleted is gone.
import { type AgUiEvent, emptyFold, foldEvents } from '@holdfast/protocol'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Frame, readEvents, readLog, request, type Sent, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { until } from '../support/readers.ts'
import { connect, type Sql } from '../support/sql.ts'

type View = {
  messages: {
    turn: number
    index: number
    runId: string
    status: string
    message: { id: string }
  }[]
  activeRun: { runId: string; state: string; sequence: number; open: AgUiEvent[] } | null
  queuedRuns: { runId: string; turn: number; message: unknown }[]
  state: unknown
}

/** A word every 60 ms, for a minute. */
const SLOW = '/long 1000 /slow 60'

let holdfast: Holdfast
let sql: Sql
/** What the tests deleted; it is purged some seconds later. */
const deleted: Sent[] = []

beforeAll(async () => {
  holdfast = await startHoldfast()
  sql = await connect(holdfast.databaseUrl)
})

afterAll(async () => {
  await sql[Symbol.asyncDispose]()
  await holdfast[Symbol.asyncDispose]()
})

async function view(conversationId: string): Promise<View> {
  const { status, body } = await request(`${holdfast.url}/conversations/${conversationId}`)
  expect(status).toBe(200)
  return body as unknown as View
}

async function remove(conversationId: string, query = '') {
  const url = `${holdfast.url}/conversations/${conversationId}${query}`
  return await request(url, { method: 'DELETE' })
}

/** Every address under which a conversation and its run can be asked for. */
async function statuses({ runId, conversationId }: Sent): Promise<number[]> {
  const { url } = holdfast
  const answers = await Promise.all([
    request(`${url}/conversations/${conversationId}`),
    request(`${url}/conversations/${conversationId}`, { method: 'PATCH', json: { title: 'x' } }),
    request(`${url}/conversations/${conversationId}`, { method: 'DELETE' }),
    request(`${url}/conversations/${conversationId}?cancel=true`, { method: 'DELETE' }),
    request(`${url}/runs/${runId}`),
    request(`${url}/runs/${runId}/events`),
    request(`${url}/runs/${runId}/events?after=0`),
    request(`${url}/runs/${runId}/cancel`, { json: {} }),
    request(`${url}/runs`, { json: { message: 'x', clientTurnId: runId, conversationId } }),
  ])
  return answers.map(({ status }) => status)
}

async function listed(path: 'runs' | 'conversations', id: string): Promise<boolean> {
  const { body } = await request(`${holdfast.url}/${path}?limit=100`)
  return JSON.stringify(body).includes(id)
}

/** What is left in the tables of a run or conversation. */
async function leftovers({ runId, conversationId }: Sent): Promise<number> {
  const ofRun = ['run_events', 'run_inputs', 'run_results', 'run_folds', 'run_attempts']
  const counts = [
    ...ofRun.map((table) => `(SELECT count(*) FROM holdfast.${table} WHERE run_id = $1)`),
    '(SELECT count(*) FROM holdfast.runs WHERE id = $1)',
    '(SELECT count(*) FROM holdfast.conversations WHERE id = $2)',
    '(SELECT count(*) FROM holdfast.conversation_messages WHERE conversation_id = $2)',
  ]
  const [row] = await sql<{ n: number }>(`SELECT (${counts.join(' + ')})::int AS n`, [
    runId,
    conversationId,
  ])
  return row?.n ?? -1
}

test('a page that is reloaded at any moment continues the running answer exactly', async () => {
  const first = await send(holdfast.url, '/long 2')
  const { conversationId } = first
  await readLog(holdfast.url, first.runId)
  const active = await send(holdfast.url, '/think /tool x /state /slow 2', { conversationId })
  const waiting = await send(holdfast.url, '/long 1', { conversationId, onActive: 'enqueue' })
  const whole = readLog(holdfast.url, active.runId)
  const reloads: { seen: View; rest: Promise<Frame[]> }[] = []
  for (;;) {
    const seen = await view(conversationId)
    if (seen.activeRun?.runId !== active.runId) break
    const after = seen.activeRun.sequence
    if (reloads.at(-1)?.seen.activeRun?.sequence === after) continue
    reloads.push({ seen, rest: readLog(holdfast.url, active.runId, after) })
  }
  expect(reloads.length).toBeGreaterThan(10)
  const log = await whole
  await readLog(holdfast.url, waiting.runId)
  const final = (await view(conversationId)).messages
  const upToActive = final.filter(({ turn }) => turn <= 2)
  for (const { seen, rest } of reloads) {
    const { activeRun, queuedRuns, messages, state } = seen
    const after = activeRun?.sequence ?? -1
    expect(await rest).toEqual(log.slice(after))
    expect(messages.every(({ turn }) => turn <= 2)).toBe(true)
    expect(queuedRuns).toMatchObject([{ runId: waiting.runId, turn: 3 }])
    const known = foldEvents(
      emptyFold(),
      log.slice(0, after).map(({ event }) => event),
    )
    expect(activeRun?.open).toEqual(known.open.map(({ start }) => start))
    const base = { ...known, state, messages: messages.map(({ message }) => message) as never[] }
    const fold = foldEvents(
      base,
      log.slice(after).map(({ event }) => event),
    )
    expect(fold.messages).toEqual(upToActive.map(({ message }) => message))
  }
})

test('the view of a conversation has the whole shape', async () => {
  const sent = await send(holdfast.url, 'What is   in a\nname?')
  await readLog(holdfast.url, sent.runId)
  const { conversationId } = sent
  const { body } = await request(`${holdfast.url}/conversations/${conversationId}`)
  const iso = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  const common = { turn: 1, runId: sent.runId, status: 'complete', createdAt: iso }
  expect(body).toEqual({
    conversationId,
    externalId: conversationId,
    title: 'What is in a name?',
    createdAt: iso,
    updatedAt: iso,
    messages: [
      { ...common, index: 0, message: expect.objectContaining({ role: 'user' }) },
      { ...common, index: 1, message: expect.objectContaining({ role: 'assistant' }) },
    ],
    activeRun: null,
    queuedRuns: [],
    pendingInterrupts: [],
    state: null,
  })
})

test('state that a turn leaves is the state of the conversation', async () => {
  const { runId, conversationId } = await send(holdfast.url, '/state', { state: { mine: 1 } })
  await readLog(holdfast.url, runId)
  expect((await view(conversationId)).state).toEqual({ mine: 1, demo: { turn: 1, done: true } })
})

test('a title can be changed, and a wrong one not', async () => {
  const { runId, conversationId } = await send(holdfast.url, '/long 1')
  const url = `${holdfast.url}/conversations/${conversationId}`
  await readLog(holdfast.url, runId)
  const renamed = await request(url, { method: 'PATCH', json: { title: 'Häfen \u0000' } })
  expect(renamed).toMatchObject({ status: 200, body: { conversationId, title: 'Häfen \uFFFD' } })
  expect((await request(url)).body).toMatchObject({ title: 'Häfen \uFFFD' })
  for (const json of [{}, { title: '' }, { title: 5 }, { title: 'x'.repeat(501) }]) {
    const refused = await request(url, { method: 'PATCH', json })
    expect(refused).toMatchObject({ status: 400, body: { errors: [{ path: 'title' }] } })
  }
})

test('conversations are listed newest first, page by page, each exactly once', async () => {
  const before = new Set<string>()
  for (let at = 0; at < 7; at += 1) {
    const { conversationId } = await send(holdfast.url, '/long 1')
    before.add(conversationId)
  }
  const ids: string[] = []
  let cursor: string | null = ''
  while (cursor !== null) {
    const query: string = cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`
    const { body } = await request(`${holdfast.url}/conversations?limit=3${query}`)
    const page = body['conversations'] as { conversationId: string }[]
    expect(page.length).toBeLessThanOrEqual(3)
    ids.push(...page.map(({ conversationId }) => conversationId))
    cursor = body['nextCursor'] as string | null
    // Newcomers stand before the first page and move nothing behind it.
    if (ids.length === 3) await send(holdfast.url, '/long 1')
  }
  expect(ids).toEqual([...new Set(ids)].sort().reverse())
  expect(ids.slice(0, 7)).toEqual([...before].reverse())
  for (const query of ['limit=0', 'limit=101', 'limit=x', 'cursor=none', 'cursor=']) {
    expect((await request(`${holdfast.url}/conversations?${query}`)).status).toBe(400)
  }
})

test('a conversation that has ended is deleted: 404 everywhere, and in no list', async () => {
  const sent = await send(holdfast.url, '/long 1')
  await readLog(holdfast.url, sent.runId)
  expect(await leftovers(sent)).toBeGreaterThan(0)
  expect((await remove(sent.conversationId)).status).toBe(204)
  expect(await statuses(sent)).toEqual(Array(9).fill(404))
  expect(await listed('runs', sent.runId)).toBe(false)
  expect(await listed('conversations', sent.conversationId)).toBe(false)
  deleted.push(sent)
})

test('a conversation with a live run is deleted only when told to cancel it', async () => {
  const sent = await send(holdfast.url, SLOW)
  const { conversationId } = sent
  const waiting = await send(holdfast.url, '/long 1', { conversationId, onActive: 'enqueue' })
  const streaming = Promise.withResolvers<void>()
  const reader = readEvents(holdfast.url, sent.runId, {
    after: 0,
    onFrame: ({ event }) => event.type === 'TEXT_MESSAGE_CONTENT' && streaming.resolve(),
  })
  await streaming.promise
  const refused = await remove(conversationId)
  expect(refused).toMatchObject({
    status: 409,
    body: { code: 'conversation_busy', activeRunId: sent.runId },
  })
  expect((await view(conversationId)).activeRun?.runId).toBe(sent.runId)
  expect((await remove(conversationId, '?cancel=true')).status).toBe(204)
  expect(await statuses(sent)).toEqual(Array(9).fill(404))
  expect(await statuses(waiting)).toEqual(Array(9).fill(404))
  // The stream ends, and if it says why, then that the run was cancelled.
  const last = (await reader).at(-1)?.event
  const told = await sql('SELECT run_id FROM holdfast.outbox WHERE run_id = ANY ($1)', [
    [sent.runId, waiting.runId],
  ])
  expect(told).toEqual([])
  if (last?.type === 'RUN_FINISHED') expect(last.outcome).toMatchObject({ type: 'cancelled' })
  else expect(last?.type).not.toBe('RUN_ERROR')
  deleted.push(sent, waiting)
})

test('what was never there cannot be seen, renamed or deleted', async () => {
  const nobody = '01900000-0000-7000-8000-000000000000'
  for (const id of [nobody, 'x', 'x%20y']) {
    const { url } = holdfast
    expect((await request(`${url}/conversations/${id}`)).status).toBe(404)
    expect((await remove(id)).status).toBe(404)
    const patch = { method: 'PATCH', json: { title: 'x' } }
    expect((await request(`${url}/conversations/${id}`, patch)).status).toBe(404)
  }
})

test('what was deleted is purged', async () => {
  expect(deleted).toHaveLength(3)
  for (const sent of deleted) {
    await until('it is purged', 20_000, async () => (await leftovers(sent)) === 0)
    expect(await statuses(sent)).toEqual(Array(9).fill(404))
  }
})
