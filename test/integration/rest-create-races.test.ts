// Goal: what many callers at once, and a BFF that dies, leave of a turn. Method: two BFFs, real signals.
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readLog, request, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { connect, type Sql } from '../support/sql.ts'

let holdfast: Holdfast
let sql: Sql

beforeAll(async () => {
  holdfast = await startHoldfast({ bffs: 2 })
  sql = await connect(holdfast.databaseUrl)
})

afterAll(async () => {
  await sql[Symbol.asyncDispose]()
  await holdfast[Symbol.asyncDispose]()
})

/** Turn about, over all BFFs. */
function urlOf(at: number): string {
  return holdfast.bffs[at % holdfast.bffs.length]?.url ?? holdfast.url
}

test('20 copies of one turn over two BFFs are one run', async () => {
  const json = { message: '/long 5', clientTurnId: randomUUID() }
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, at) => request(`${urlOf(at)}/runs`, { json })),
  )
  const statuses = answers.map(({ status }) => status).sort((a, b) => a - b)
  expect(statuses).toEqual([...Array<number>(19).fill(200), 202])
  expect(new Set(answers.map(({ body }) => body['runId'])).size).toBe(1)
  expect(new Set(answers.map(({ body }) => body['conversationId'])).size).toBe(1)
  const runId = String(answers[0]?.body['runId'])
  await readLog(urlOf(1), runId)
  const rows = await sql(
    `SELECT (SELECT count(*)::int FROM holdfast.runs) AS runs,
       (SELECT count(*)::int FROM holdfast.conversations) AS conversations,
       (SELECT count(*)::int FROM holdfast.conversation_messages WHERE role = 'user') AS said`,
  )
  expect(rows).toEqual([{ runs: 1, conversations: 1, said: 1 }])
})

test('of 50 turns at once on one conversation one is accepted, the rest leave no trace', async () => {
  const first = await send(holdfast.url, '/long 1')
  await readLog(holdfast.url, first.runId)
  const { conversationId } = first
  const turns = Array.from({ length: 50 }, (_, at) => ({
    message: `/slow 20 number ${at}`,
    clientTurnId: randomUUID(),
    conversationId,
  }))
  const answers = await Promise.all(turns.map((json, at) => request(`${urlOf(at)}/runs`, { json })))
  const accepted = answers.filter(({ status }) => status === 202)
  const refused = answers.filter(({ status }) => status === 409)
  expect([accepted.length, refused.length]).toEqual([1, 49])
  const runId = String(accepted[0]?.body['runId'])
  expect(refused.every(({ body }) => body['code'] === 'conversation_busy')).toBe(true)
  expect(new Set(refused.map(({ body }) => body['activeRunId']))).toEqual(new Set([runId]))
  const rows = await sql(
    `SELECT (SELECT count(*)::int FROM holdfast.runs WHERE conversation_id = $1) AS runs,
       (SELECT count(*)::int FROM holdfast.client_turns WHERE client_turn_id = ANY ($2)) AS turns,
       (SELECT next_turn FROM holdfast.conversations WHERE id = $1) AS next_turn`,
    [conversationId, turns.map(({ clientTurnId }) => clientTurnId)],
  )
  expect(rows).toEqual([{ runs: 2, turns: 1, next_turn: 3 }])
  await request(`${holdfast.url}/runs/${runId}/cancel?wait=10`, { json: {} })
  const loser = turns[answers.findIndex(({ status }) => status === 409)]
  const later = await request(`${holdfast.url}/runs`, { json: loser })
  expect(later.status).toBe(202)
  await request(`${holdfast.url}/runs/${String(later.body['runId'])}/cancel?wait=10`, { json: {} })
})

test('20 enqueued at once get turns of their own, without a gap', async () => {
  const first = await send(holdfast.url, '/slow 20')
  const { conversationId } = first
  const sent = await Promise.all(
    Array.from({ length: 20 }, (_, at) =>
      send(urlOf(at), '/long 1', { conversationId, onActive: 'enqueue' }),
    ),
  )
  const rows = await sql<{ turn: number }>(
    'SELECT turn FROM holdfast.runs WHERE conversation_id = $1 ORDER BY turn',
    [conversationId],
  )
  expect(rows.map(({ turn }) => turn)).toEqual(Array.from({ length: 21 }, (_, at) => at + 1))
  await request(`${holdfast.url}/runs/${first.runId}/cancel`, { json: {} })
  await Promise.all(sent.map(({ runId }, at) => readLog(urlOf(at), runId)))
})

test('a 202 is durable: the BFF is killed at once, and the run ends all the same', async () => {
  const doomed = await holdfast.startBff()
  const turn = { message: '/long 5', clientTurnId: randomUUID() }
  const answer = await request(`${doomed.url}/runs`, { json: turn })
  doomed.kill('SIGKILL')
  expect(answer.status).toBe(202)
  const runId = String(answer.body['runId'])
  await doomed.exited
  const log = await readLog(holdfast.url, runId)
  expect(log.at(-1)?.event).toMatchObject({ type: 'RUN_FINISHED', outcome: { type: 'success' } })
  const again = await request(`${holdfast.url}/runs`, { json: turn })
  expect(again).toMatchObject({ status: 200, body: { runId, state: 'succeeded' } })
})
