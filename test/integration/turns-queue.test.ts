// Goal: turns of a conversation run in order, and nothing but their own end moves them. Method: one Holdfast
// of real processes; the demo agent counts the turns it was shown.
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readEvents, readLog, request, type Sent, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { textOf } from '../support/readers.ts'
import { connect, type Sql } from '../support/sql.ts'

/** A word every 60 ms, for a minute. */
const SLOW = '/long 1000 /slow 60'

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

function enqueue(conversationId: string, message: string): Promise<Sent> {
  return send(holdfast.url, message, { conversationId, onActive: 'enqueue' })
}

async function cancel(runId: string, query = '') {
  return await request(`${holdfast.url}/runs/${runId}/cancel${query}`, { json: {} })
}

async function eventsOf(runId: string) {
  return (await readLog(holdfast.url, runId)).map(({ event }) => event)
}

type Row = { turn: number; index: number; runId: string; status: string; message: { role: string } }

async function conversation(id: string) {
  const { body } = await request(`${holdfast.url}/conversations/${id}`)
  return body as unknown as { messages: Row[]; activeRun: unknown; queuedRuns: unknown }
}

async function spans(conversationId: string) {
  return await sql<{ turn: number; state: string; started_at: Date | null; finished_at: Date }>(
    `SELECT turn, state, started_at, finished_at FROM holdfast.runs
     WHERE conversation_id = $1 ORDER BY turn`,
    [conversationId],
  )
}

test('enqueued turns run one after the other, each with the history up to its own', async () => {
  const first = await send(holdfast.url, '/slow 1 one')
  const { conversationId } = first
  const rest: Sent[] = []
  for (const word of ['two', 'three', 'four']) rest.push(await enqueue(conversationId, word))
  for (const [at, { runId }] of [first, ...rest].entries()) {
    expect(textOf(await eventsOf(runId))).toContain(`This is turn ${at + 1} of our conversation.`)
  }
  const { messages, activeRun, queuedRuns } = await conversation(conversationId)
  expect(messages.map(({ turn, index, message }) => [turn, index, message.role])).toEqual(
    [1, 2, 3, 4].flatMap((turn) => [
      [turn, 0, 'user'],
      [turn, 1, 'assistant'],
    ]),
  )
  expect([activeRun, queuedRuns]).toEqual([null, []])
  const lived = await spans(conversationId)
  for (const [at, run] of lived.slice(1).entries()) {
    expect(Number(run.started_at)).toBeGreaterThanOrEqual(Number(lived[at]?.finished_at))
  }
})

test('the prelude of an earlier turn holds nothing of the later ones', async () => {
  const first = await send(holdfast.url, '/long 2')
  const { conversationId } = first
  const second = await enqueue(conversationId, '/long 3')
  await readLog(holdfast.url, second.runId)
  const prelude = await readEvents(holdfast.url, first.runId)
  const snapshot = prelude.find(({ event }) => event.type === 'MESSAGES_SNAPSHOT')?.event
  expect(snapshot).toMatchObject({ messages: [{ role: 'user' }, { content: 'word1 word2' }] })
})

test('a turn that fails, one that is stopped: the turns behind them run', async () => {
  const first = await send(holdfast.url, '/long 2 /fail')
  const { conversationId } = first
  const second = await enqueue(conversationId, '/slow 20')
  const third = await enqueue(conversationId, 'three')
  await readEvents(holdfast.url, second.runId, { after: 0, until: (frames) => frames.length > 3 })
  expect((await cancel(second.runId)).status).toBe(202)
  expect(textOf(await eventsOf(third.runId))).toContain('This is turn 3')
  const states = (await spans(conversationId)).map(({ state }) => state)
  expect(states).toEqual(['failed', 'stopped', 'succeeded'])
})

test('the 21st waiting turn is refused, and leaves no trace', async () => {
  const first = await send(holdfast.url, SLOW)
  const { conversationId } = first
  for (let at = 0; at < 20; at += 1) await enqueue(conversationId, '/long 1')
  const json = { message: '/long 1', clientTurnId: randomUUID(), conversationId }
  const refused = await request(`${holdfast.url}/runs`, { json: { ...json, onActive: 'enqueue' } })
  expect(refused).toMatchObject({
    status: 409,
    body: { code: 'conversation_busy', activeRunId: first.runId },
  })
  expect(await spans(conversationId)).toHaveLength(21)
  const instead = await request(`${holdfast.url}/runs`, { json: { ...json, onActive: 'cancel' } })
  expect(instead.status).toBe(202)
  await readLog(holdfast.url, String(instead.body['runId']))
  const states = (await spans(conversationId)).map(({ state }) => state)
  expect(states).toEqual([...Array<string>(21).fill('stopped'), 'succeeded'])
})

test('a waiting turn is cancelled at once, and the others keep their places', async () => {
  const first = await send(holdfast.url, SLOW)
  const { conversationId } = first
  const second = await enqueue(conversationId, 'two')
  const third = await enqueue(conversationId, 'three')
  const answer = await cancel(second.runId)
  expect(answer).toMatchObject({
    status: 202,
    body: { runId: second.runId, state: 'stopped', cancelRequestedAt: expect.any(String) },
  })
  const log = await readLog(holdfast.url, second.runId)
  expect(log.map(({ event }) => event.type)).toEqual(['RUN_STARTED', 'RUN_FINISHED'])
  expect(log[1]?.event).toMatchObject({ outcome: { type: 'cancelled' } })
  const { activeRun, queuedRuns } = await conversation(conversationId)
  expect(activeRun).toMatchObject({ runId: first.runId })
  expect(queuedRuns).toMatchObject([{ runId: third.runId, turn: 3 }])
  await cancel(first.runId)
  // The user did say it, so the next turn is shown it.
  expect(textOf(await eventsOf(third.runId))).toContain('This is turn 3')
  const { messages } = await conversation(conversationId)
  expect(messages.filter(({ turn }) => turn === 2)).toHaveLength(1)
})

test('the head of the queue, cancelled while the next one waits, makes it due', async () => {
  const first = await send(holdfast.url, SLOW)
  const { conversationId } = first
  const turns = [first]
  for (let at = 0; at < 3; at += 1) turns.push(await enqueue(conversationId, SLOW))
  for (const { runId } of turns) expect([200, 202]).toContain((await cancel(runId)).status)
  for (const { runId } of turns) await readLog(holdfast.url, runId)
  const next = await send(holdfast.url, 'still there?', { conversationId })
  expect(textOf(await eventsOf(next.runId))).toContain('This is turn 5')
})

test('onActive=cancel stops all that is unfinished and then starts, in one call', async () => {
  const first = await send(holdfast.url, SLOW)
  const { conversationId } = first
  const second = await enqueue(conversationId, 'two')
  await readEvents(holdfast.url, first.runId, { after: 0, until: (frames) => frames.length > 4 })
  const third = await send(holdfast.url, 'three', { conversationId, onActive: 'cancel' })
  expect(textOf(await eventsOf(third.runId))).toContain('This is turn 3')
  for (const { runId } of [first, second]) {
    expect((await eventsOf(runId)).at(-1)).toMatchObject({ outcome: { type: 'cancelled' } })
  }
  const lived = await spans(conversationId)
  expect(lived.map(({ state }) => state)).toEqual(['stopped', 'stopped', 'succeeded'])
  expect(Number(lived[2]?.started_at)).toBeGreaterThanOrEqual(Number(lived[0]?.finished_at))
  const { messages } = await conversation(conversationId)
  expect(messages.map(({ turn, status }) => [turn, status])).toEqual([
    [1, 'complete'],
    [1, 'partial'],
    [2, 'complete'],
    [3, 'complete'],
    [3, 'complete'],
  ])
})

test('onActive=cancel on a free conversation just starts', async () => {
  const first = await send(holdfast.url, '/long 1')
  const { conversationId } = first
  await readLog(holdfast.url, first.runId)
  const second = await send(holdfast.url, 'again', { conversationId, onActive: 'cancel' })
  expect(textOf(await eventsOf(second.runId))).toContain('This is turn 2')
})

test('stop-and-send: 200 times a cancel and a new turn at once, and none is refused or lost', async () => {
  const conversations = await Promise.all(Array.from({ length: 4 }, () => send(holdfast.url, SLOW)))
  await Promise.all(
    conversations.map(async ({ runId, conversationId }) => {
      let last = runId
      for (let at = 0; at < 50; at += 1) {
        const more = { conversationId, onActive: 'cancel' }
        const stop = cancel(last)
        const sent = await send(holdfast.url, at === 49 ? '/long 3' : SLOW, more)
        expect([200, 202]).toContain((await stop).status)
        last = sent.runId
      }
      const log = await readLog(holdfast.url, last)
      expect(log.at(-1)?.event).toMatchObject({ outcome: { type: 'success' } })
      const states = (await spans(conversationId)).map(({ state }) => state)
      expect(states).toEqual([...Array<string>(50).fill('stopped'), 'succeeded'])
    }),
  )
})
