// Goal: each invariant's query finds a violation of it, and only that. Method: a healthy database with a run in
// every condition; one violation at a time is planted behind the triggers' back, in a transaction that is undone.
import { randomUUID } from 'node:crypto'
import { emptyFold } from '@holdfast/protocol'
import {
  cancelRun,
  claimDeliveries,
  expandNotifications,
  newId,
  openStore,
  recordDelivery,
  releaseRun,
  type Store,
  saveFold,
  VIOLATION_QUERIES,
  violations,
} from '@holdfast/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ATTACHMENT_PLANTS, IMAGE } from '../support/attachment-plants.ts'
import { ADA, accept, append, claimOne, finish, message, recordAgents } from '../support/by-hand.ts'
import { createDatabase, type TestDatabase } from '../support/database.ts'
import { DELIVERY_PLANTS, DELIVERY_WALLS, EVENT_OF_RUN } from '../support/delivery-plants.ts'
import { connect, type Sql } from '../support/sql.ts'
import { recordStep, STEP_PLANTS } from '../support/step-plants.ts'

let database: TestDatabase
let store: Store
let sql: Sql
/** What the plants call `$1`, by its name. */
const runs: Record<Subject, string> = {
  ended: '',
  stopped: '',
  running: '',
  parked: '',
  queued: '',
  handedBack: '',
  stray: '',
}
type Subject = 'ended' | 'stopped' | 'running' | 'parked' | 'queued' | 'handedBack' | 'stray'

beforeAll(async () => {
  database = await createDatabase()
  store = openStore({ databaseUrl: database.url, applicationName: 'test', poolMax: 4 })
  sql = await connect(database.url)
  await recordAgents(store)
  await makeRuns()
})

afterAll(async () => {
  await sql[Symbol.asyncDispose]()
  await store[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

async function speaking(more = {}): Promise<Awaited<ReturnType<typeof claimOne>>> {
  await accept(store, more)
  const claimed = await claimOne(store)
  const { lease } = claimed
  expect(await append(store, lease, 1, message(`m-${lease.runId}`, 3))).toBe(true)
  return claimed
}

async function makeRuns(): Promise<void> {
  const ended = (await speaking({ message: IMAGE })).lease
  await recordStep(store, ended)
  const file = { name: 'a.txt', path: 'acme/a.txt', mediaType: 'text/plain', bytes: 3 }
  await finish(store, ended, undefined, undefined, [file])
  await expandNotifications(store, ['https://a.test/', 'https://b.test/'], 10)
  const slots = { perEndpoint: 1, perOrigin: 1, total: 1 }
  const relay = { relay: newId(store), leaseMs: 60_000, canSign: true, slots, inFlight: [] }
  for (const delivery of await claimDeliveries(store, relay)) {
    await recordDelivery(store, delivery, { kind: 'delivered', status: 200 })
  }
  const stopped = (await speaking()).lease
  await cancelRun(store, ADA, stopped.runId)
  await finish(store, stopped)
  const released = (await speaking()).lease
  await releaseRun(store, released, 5, {
    command: 'hand_back',
    delayMs: 3_600_000,
    closers: [],
    fold: emptyFold(),
  })
  const running = (await speaking()).lease
  await saveFold(store, running, 4, emptyFold())
  const parked = await accept(store, { conversationId: running.conversationId })
  const queued = await accept(store)
  Object.assign(runs, {
    ended: ended.runId,
    stopped: stopped.runId,
    handedBack: released.runId,
    running: running.runId,
    parked: parked.runId,
    queued: queued.runId,
    stray: newId(store),
  })
}

const CLAIM = `execution_epoch = 1, owner = '${randomUUID()}', lease_until = now() + interval '1 hour'`

/** The walls that stand before some of the queries: a plant has to get past them. */
const WALLS: readonly [invariant: string, statement: string][] = [
  ['I19 at most one', 'DROP INDEX holdfast.runs_one_running'],
  ...DELIVERY_WALLS,
]

/** [invariant, whose, what breaks it]; `$1` is the run's id. */
const PLANTS: readonly [invariant: string, of: Subject, statement: string][] = [
  [
    'I1 no event carries an epoch that its run has not reached',
    'running',
    `UPDATE holdfast.run_events SET epoch = 9 WHERE run_id = $1 AND sequence = 5`,
  ],
  [
    'I1 epochs never fall along a log',
    'running',
    `WITH later AS (UPDATE holdfast.run_attempts SET base_sequence = 99 WHERE run_id = $1)
     UPDATE holdfast.run_events SET epoch = 0 WHERE run_id = $1 AND sequence = 5`,
  ],
  [
    'I1 what an attempt wrote stands between its claim and the next one',
    'running',
    `UPDATE holdfast.run_attempts SET base_sequence = 0 WHERE run_id = $1`,
  ],
  [
    'I1 an artifact carries the epoch that ended its run',
    'ended',
    `UPDATE holdfast.artifacts SET epoch = 0 WHERE run_id = $1`,
  ],
  [
    'I4 every running run has a lease and an owner',
    'running',
    `UPDATE holdfast.runs SET lease_until = NULL WHERE id = $1`,
  ],
  [
    'I4 every running run has a lease and an owner',
    'running',
    `UPDATE holdfast.runs SET owner = NULL WHERE id = $1`,
  ],
  [
    'I4 every running run has the one open attempt of its epoch',
    'running',
    `UPDATE holdfast.run_attempts SET ended_at = now(), outcome = 'lost' WHERE run_id = $1`,
  ],
  [
    'I4 only the attempt of a running run is open',
    'ended',
    `UPDATE holdfast.run_attempts SET ended_at = NULL, outcome = NULL WHERE run_id = $1`,
  ],
  [
    'I4 a parked turn stands behind an unfinished one',
    'queued',
    `UPDATE holdfast.runs SET available_at = 'infinity' WHERE id = $1`,
  ],
  [
    'I4 a queued run waits with a time limit unless it is parked',
    'queued',
    `UPDATE holdfast.runs SET queue_until = NULL WHERE id = $1`,
  ],
  [
    'I5 sequences are 1 to n without a gap',
    'running',
    `DELETE FROM holdfast.run_events WHERE run_id = $1 AND sequence = 3`,
  ],
  [
    'I5 sequences are 1 to n without a gap',
    'running',
    `UPDATE holdfast.runs SET last_sequence = last_sequence + 1 WHERE id = $1`,
  ],
  [
    'I5 no event stands without its run',
    'stray',
    `INSERT INTO holdfast.run_events (run_id, sequence, epoch, tenant_id, type, payload)
     VALUES ($1, 1, 0, 'acme', 'RUN_STARTED', '{}')`,
  ],
  [
    'I6 an ended run has exactly one terminal event',
    'ended',
    `UPDATE holdfast.run_events SET type = 'CUSTOM' WHERE run_id = $1 AND type = 'RUN_FINISHED'`,
  ],
  [
    'I6 a terminal event is the last of its log and its run has ended',
    'running',
    `UPDATE holdfast.run_events SET type = 'RUN_ERROR' WHERE run_id = $1 AND sequence = 5`,
  ],
  [
    'I6 state, outcome and terminal event say the same',
    'ended',
    `UPDATE holdfast.run_results SET terminal = '{"type":"RUN_ERROR"}' WHERE run_id = $1`,
  ],
  [
    'I6 state, outcome and terminal event say the same',
    'ended',
    `UPDATE holdfast.runs SET outcome = 'interrupt' WHERE id = $1`,
  ],
  [
    'I6 state, outcome and terminal event say the same',
    'stopped',
    `DELETE FROM holdfast.run_results WHERE run_id = $1`,
  ],
  [
    'I8 every log begins with RUN_STARTED',
    'ended',
    `UPDATE holdfast.run_events SET type = 'CUSTOM' WHERE run_id = $1 AND sequence = 1`,
  ],
  [
    'I8 the messages of a turn are numbered without a gap',
    'ended',
    `UPDATE holdfast.conversation_messages SET index = 5 WHERE run_id = $1 AND index = 1`,
  ],
  [
    'I8 a run that has not ended has stored what its turn brought only',
    'running',
    `INSERT INTO holdfast.conversation_messages
       (conversation_id, turn, index, tenant_id, run_id, message_id, role, status, message)
     SELECT conversation_id, turn, 1, tenant_id, run_id, 'early', 'assistant', 'complete', '{}'
     FROM holdfast.conversation_messages WHERE run_id = $1`,
  ],
  [
    'I8 the saved fold is not ahead of its log',
    'running',
    `UPDATE holdfast.run_folds SET sequence = 99 WHERE run_id = $1`,
  ],
  [
    'I8 the saved fold is not ahead of its log',
    'running',
    `UPDATE holdfast.run_folds SET epoch = 9 WHERE run_id = $1`,
  ],
  ...ATTACHMENT_PLANTS,
  [
    'I10 an ended run keeps neither fold nor owner',
    'ended',
    `UPDATE holdfast.runs SET lease_until = now() WHERE id = $1`,
  ],
  [
    'I10 an ended run keeps neither fold nor owner',
    'stopped',
    `INSERT INTO holdfast.run_folds (run_id, tenant_id, epoch, sequence, fold)
     VALUES ($1, 'acme', 1, 1, '{"open":[]}')`,
  ],
  [
    'I10 an artifact belongs to a run that has ended',
    'running',
    `INSERT INTO holdfast.artifacts (run_id, name, tenant_id, epoch, path, media_type, bytes)
     VALUES ($1, 'early', 'acme', 1, 'p', 'text/plain', 1)`,
  ],
  [
    'I10 an artifact belongs to a run that has ended',
    'stray',
    `INSERT INTO holdfast.artifacts (run_id, name, tenant_id, epoch, path, media_type, bytes)
     VALUES ($1, 'lost', 'acme', 1, 'p', 'text/plain', 1)`,
  ],
  [
    'I12 every stored tool call of a stopped or failed run is answered',
    'stopped',
    `UPDATE holdfast.conversation_messages SET message = '{"toolCalls":[{"id":"c1"}]}'
     WHERE run_id = $1 AND role = 'assistant'`,
  ],
  [
    'I12 a queued run has nothing open',
    'handedBack',
    `UPDATE holdfast.run_folds SET fold = '{"open":[{}]}' WHERE run_id = $1`,
  ],
  [
    'I16 no attempt was spent that was not claimed',
    'queued',
    `UPDATE holdfast.runs SET attempts_used = 1 WHERE id = $1`,
  ],
  [
    'I16 no attempt was spent that was not claimed',
    'running',
    `UPDATE holdfast.runs SET max_attempts = 0 WHERE id = $1`,
  ],
  [
    'I17 every ended run of a conversation that is there has one notification',
    'ended',
    `WITH told AS (DELETE FROM holdfast.deliveries WHERE event_id = ${EVENT_OF_RUN})
     DELETE FROM holdfast.outbox WHERE run_id = $1`,
  ],
  [
    'I17 every ended run of a conversation that is there has one notification',
    'stopped',
    `UPDATE holdfast.outbox SET type = 'run.failed' WHERE run_id = $1`,
  ],
  [
    'I12 only a run that ended and behind which nobody spoke waits for an answer',
    'running',
    `UPDATE holdfast.conversations c SET asked_by = $1
     WHERE id = (SELECT conversation_id FROM holdfast.runs WHERE id = $1)`,
  ],
  [
    'I17 no run is notified that has not ended',
    'running',
    `INSERT INTO holdfast.outbox (event_id, run_id, tenant_id, type, payload)
     VALUES (gen_random_uuid(), $1, 'acme', 'run.succeeded', '{}')`,
  ],
  ...DELIVERY_PLANTS,
  ...STEP_PLANTS,
  [
    'I18 every run has its client turn, its input, and a message or an answer',
    'ended',
    `DELETE FROM holdfast.client_turns WHERE run_id = $1`,
  ],
  [
    'I18 every run has its client turn, its input, and a message or an answer',
    'queued',
    `DELETE FROM holdfast.run_inputs WHERE run_id = $1`,
  ],
  [
    'I18 every run has its client turn, its input, and a message or an answer',
    'ended',
    `UPDATE holdfast.conversation_messages SET role = 'system' WHERE run_id = $1 AND role = 'user'`,
  ],
  [
    'I19 at most one run of a conversation is running',
    'parked',
    `WITH attempt AS (
       INSERT INTO holdfast.run_attempts (run_id, epoch, tenant_id, runner, reason, base_sequence)
       VALUES ($1, 1, 'acme', gen_random_uuid(), 'first', 1))
     UPDATE holdfast.runs SET state = 'running', available_at = now(), ${CLAIM} WHERE id = $1`,
  ],
  [
    'I19 turns begin in order',
    'parked',
    `UPDATE holdfast.runs SET started_at = now() WHERE id = $1`,
  ],
  [
    'I20 what belongs to a run belongs to its tenant',
    'ended',
    `UPDATE holdfast.conversation_messages SET tenant_id = 'other' WHERE run_id = $1 AND index = 1`,
  ],
  [
    'I20 what belongs to a run belongs to its tenant',
    'ended',
    `UPDATE holdfast.run_events SET tenant_id = 'other' WHERE run_id = $1 AND sequence = 2`,
  ],
  [
    'I20 what belongs to a run belongs to its tenant',
    'ended',
    `UPDATE holdfast.artifacts SET tenant_id = 'other' WHERE run_id = $1`,
  ],
  [
    'I20 what belongs to a run belongs to its tenant',
    'ended',
    `UPDATE holdfast.conversations SET user_id = 'eve'
     WHERE id = (SELECT conversation_id FROM holdfast.runs WHERE id = $1)`,
  ],
]

/** The invariants whose queries find something, asked inside the transaction of the plant. */
async function found(): Promise<string[]> {
  const names: string[] = []
  for (const [invariant, query] of Object.entries(VIOLATION_QUERIES)) {
    if ((await sql(query)).length > 0) names.push(invariant)
  }
  return names
}

test('a healthy database violates nothing, whatever condition its runs are in', async () => {
  expect(await violations(store)).toEqual([])
  const states = await sql('SELECT state FROM holdfast.runs ORDER BY state')
  expect(states.map(({ state }) => state)).toEqual(
    ['queued', 'queued', 'queued', 'running', 'stopped', 'succeeded'].sort(),
  )
})

test('every query has a plant', () => {
  const planted = new Set(PLANTS.map(([invariant]) => invariant))
  expect([...planted].sort()).toEqual(Object.keys(VIOLATION_QUERIES).sort())
})

test.each(PLANTS)('%s: found when broken in the %s run', async (invariant, of, statement) => {
  await sql('BEGIN')
  try {
    await sql('SET LOCAL session_replication_role = replica')
    for (const [name, wall] of WALLS) if (invariant.startsWith(name)) await sql(wall)
    await sql(statement, [runs[of]])
    expect(await found()).toEqual([invariant])
  } finally {
    await sql('ROLLBACK')
  }
})

test('what is found is told with its rows', async () => {
  await sql('DELETE FROM holdfast.outbox WHERE run_id = $1', [runs.ended])
  expect(await violations(store)).toEqual([
    {
      invariant: 'I17 every ended run of a conversation that is there has one notification',
      rows: [{ id: runs.ended, state: 'succeeded' }],
    },
  ])
})
