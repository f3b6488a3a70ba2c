// Goal: the records of steps, checkpoints and spans say what happened, and only who holds the run writes them. Method:
// the store's own functions against a real database; leases are ended by SQL.
import { randomUUID } from 'node:crypto'
import {
  beginStep,
  type Claimed,
  endStep,
  type Lease,
  openStore,
  readAttemptInput,
  readRun,
  readStep,
  readTimeline,
  recordLostCalls,
  type Store,
  saveCheckpoint,
  takeOver,
  violations,
  withdrawStep,
  writeSpans,
} from '@holdfast/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ADA, accept, append, claimOne, finish, recordAgents } from '../support/by-hand.ts'
import { createDatabase, type TestDatabase } from '../support/database.ts'
import { connect, type Sql } from '../support/sql.ts'

const HOUR_MS = 3_600_000
const STEP = { key: 'charge', kind: 'tool', policy: 'ask', parent: null, repeat: false } as const

let database: TestDatabase
let store: Store
let sql: Sql

beforeAll(async () => {
  database = await createDatabase()
  store = openStore({ databaseUrl: database.url, applicationName: 'test', poolMax: 8 })
  sql = await connect(database.url)
  await recordAgents(store)
})

afterAll(async () => {
  const found = await violations(store)
  await sql[Symbol.asyncDispose]()
  await store[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
  expect(found).toEqual([])
})

async function held(): Promise<Lease> {
  await accept(store)
  return (await claimOne(store, HOUR_MS)).lease
}

/** Its lease passes, and another owner has the run. */
async function lose({ runId }: Lease): Promise<Lease> {
  await sql(`UPDATE holdfast.runs SET lease_until = now() - interval '1 second' WHERE id = $1`, [
    runId,
  ])
  const request = { owner: randomUUID(), agents: ['demo'], leaseMs: HOUR_MS, limit: 100 }
  const taken = await takeOver(store, request)
  const heir = taken.find(({ lease }: Claimed) => lease.runId === runId)
  if (!heir) throw new Error('it was not taken over')
  return heir.lease
}

function begin(lease: Lease, more: { repeat?: boolean; policy?: 'retry' | 'stop' } = {}) {
  return beginStep(store, lease, { ...STEP, idempotencyKey: `${lease.runId}:charge`, ...more })
}

const done = (result: unknown) =>
  ({ key: 'charge', outcome: 'done', result: JSON.stringify(result) }) as const

async function doubts({ runId }: Lease) {
  return (await readRun(store, ADA, runId))?.inDoubt
}

test('an intent comes first, then one outcome, which stays', async () => {
  const lease = await held()
  const idempotencyKey = `${lease.runId}:charge`
  expect(await begin(lease)).toEqual({ kind: 'begun', idempotencyKey, first: true })
  expect(await readStep(store, lease, 'charge')).toEqual({ intentEpoch: 1, outcomeEpoch: null })
  // A reply that was lost: the same intent again says the same.
  expect(await begin(lease)).toMatchObject({ kind: 'begun', idempotencyKey })
  expect(await endStep(store, lease, done({ paid: 1 }))).toEqual({ kind: 'recorded' })
  expect(await endStep(store, lease, done({ paid: 2 }))).toEqual({ kind: 'settled', epoch: 1 })
  const recorded = { kind: 'recorded', outcome: 'done', result: '{"paid":1}' }
  expect(await begin(lease)).toEqual(recorded)
  const heir = await lose(lease)
  expect(await begin(heir, { repeat: true })).toEqual(recorded)
  expect(await doubts(heir)).toEqual([])
})

test('an intent without outcome of an earlier attempt is in doubt until it is decided', async () => {
  const lease = await held()
  await begin(lease)
  expect(await doubts(lease)).toEqual([])
  const heir = await lose(lease)
  const idempotencyKey = `${lease.runId}:charge`
  const doubt = { step: 'charge', idempotencyKey, since: expect.stringMatching(/Z$/) }
  expect(await doubts(heir)).toEqual([doubt])
  expect((await readAttemptInput(store, heir)).stepsInDoubt).toEqual([
    { key: 'charge', policy: 'ask' },
  ])
  expect(await begin(heir)).toEqual({ kind: 'in_doubt', idempotencyKey })
  expect(await readStep(store, heir, 'charge')).toEqual({ intentEpoch: 1, outcomeEpoch: null })
  expect(await begin(heir, { repeat: true })).toEqual({
    kind: 'begun',
    idempotencyKey,
    first: false,
  })
  expect(await doubts(heir)).toEqual([])
  await finish(store, heir, { kind: 'error', code: 'agent_error' })
  expect(await doubts(heir)).toEqual([doubt])
})

test('an intent whose effect has not begun is taken back; one of an earlier attempt is not', async () => {
  const lease = await held()
  await begin(lease)
  expect(await withdrawStep(store, lease, 'charge')).toEqual({ kind: 'withdrawn' })
  expect(await readStep(store, lease, 'charge')).toBeNull()
  await begin(lease)
  const heir = await lose(lease)
  expect(await withdrawStep(store, heir, 'charge')).toEqual({ kind: 'withdrawn' })
  expect(await readStep(store, heir, 'charge')).toEqual({ intentEpoch: 1, outcomeEpoch: null })
})

test('a compensation is a step, and says of the other one that it was undone', async () => {
  const lease = await held()
  await begin(lease)
  await endStep(store, lease, done(1))
  const idempotencyKey = `${lease.runId}:undo`
  const undo = { ...STEP, key: 'charge:undo', idempotencyKey, parent: 'charge' }
  expect(await beginStep(store, lease, undo)).toMatchObject({ kind: 'begun' })
  const end = { key: 'charge:undo', outcome: 'done', result: null, compensates: 'charge' } as const
  expect(await endStep(store, lease, end)).toEqual({ kind: 'recorded' })
  expect(await begin(lease)).toMatchObject({ kind: 'recorded', outcome: 'compensated' })
})

test('who has lost the run records neither intent nor outcome, checkpoint nor span', async () => {
  const lease = await held()
  await begin(lease)
  const heir = await lose(lease)
  const span = {
    key: 's',
    kind: 'x',
    parent: null,
    startedAgoMs: 1,
    endedAgoMs: null,
    outcome: null,
  }
  const tables = ['run_steps', 'run_checkpoints', 'run_spans']
  async function contents() {
    const found: unknown[] = []
    for (const table of tables) {
      found.push(...(await sql(`SELECT * FROM holdfast.${table} WHERE run_id = $1`, [lease.runId])))
    }
    return found
  }
  const before = await contents()
  for (const write of [
    beginStep(store, lease, { ...STEP, key: 'other', idempotencyKey: `${lease.runId}:k` }),
    begin(lease, { repeat: true }),
    endStep(store, lease, done('stale')),
    withdrawStep(store, lease, 'charge'),
    saveCheckpoint(store, lease, 1, '{}'),
    writeSpans(store, lease, [span]),
    recordLostCalls(store, lease),
  ]) {
    expect(await write).toEqual({ kind: 'fenced' })
  }
  expect(await contents()).toEqual(before)
  expect(await begin(heir)).toMatchObject({ kind: 'in_doubt' })
})

test('steps, checkpoints and spans lock only the run: a locked conversation holds none of them up', async () => {
  const lease = await held()
  const other = await connect(database.url)
  await other('BEGIN')
  await other('SELECT 1 FROM holdfast.conversations WHERE id = $1 FOR UPDATE', [
    lease.conversationId,
  ])
  expect(await begin(lease)).toMatchObject({ kind: 'begun' })
  expect(await endStep(store, lease, done(1))).toEqual({ kind: 'recorded' })
  expect(await saveCheckpoint(store, lease, 1, '{"at":1}')).toEqual({ kind: 'saved' })
  await other('COMMIT')
  await other[Symbol.asyncDispose]()
  const { checkpoint } = await readAttemptInput(store, await lose(lease))
  expect(checkpoint).toEqual({ data: { at: 1 }, sequence: 1 })
})

test('the database refuses another outcome, another key and an epoch that falls', async () => {
  const lease = await held()
  await begin(lease)
  await endStep(store, lease, done(1))
  for (const [change, code] of [
    [`outcome = 'failed'`, 'HF007'],
    [`idempotency_key = 'other'`, 'HF005'],
    [`intent_epoch = 0`, 'HF006'],
  ]) {
    await expect(
      sql(`UPDATE holdfast.run_steps SET ${change} WHERE run_id = $1`, [lease.runId]),
    ).rejects.toMatchObject({ code })
  }
})

test('the calls that a lost attempt told of are named, with what the upstream knows the run by', async () => {
  const call = (toolCallId: string, type: string, more = {}) => ({ type, toolCallId, ...more })
  const start = (id: string) => call(id, 'TOOL_CALL_START', { toolCallName: 'pay' })
  const result = (id: string) =>
    call(id, 'TOOL_CALL_RESULT', { messageId: `m${id}`, role: 'tool', content: 'ok' })
  for (const [events, named] of [
    [[start('a'), call('a', 'TOOL_CALL_END'), result('a'), start('b')], ['pay b']],
    [[start('a'), call('a', 'TOOL_CALL_END'), result('a')], ['pay a']],
  ] as const) {
    const lease = await held()
    expect(await append(store, lease, 1, events)).toBe(true)
    const heir = await lose(lease)
    expect(await recordLostCalls(store, heir)).toEqual({ kind: 'recorded' })
    expect(await recordLostCalls(store, heir)).toEqual({ kind: 'recorded' })
    const found = await doubts(heir)
    expect(found?.map(({ step }) => step)).toEqual(named)
    expect(found?.[0]?.idempotencyKey).toBe(lease.runId)
    await finish(store, heir, { kind: 'error', code: 'in_doubt' })
  }
})

test('the timeline tells waits, parts, what was cut, the gap between leases and refused writes', async () => {
  const lease = await held()
  await begin(lease)
  const span = { kind: 'x', parent: 'charge', startedAgoMs: 1000 }
  await writeSpans(store, lease, [
    { ...span, key: 'whole', endedAgoMs: 400, outcome: 'done' },
    { ...span, key: 'cut', endedAgoMs: null, outcome: null },
  ])
  const heir = await lose(lease)
  await begin(heir, { repeat: true })
  await endStep(store, heir, done(1))
  const timeline = await readTimeline(store, ADA, lease.runId)
  expect(timeline?.attempts.map(({ epoch, outcome }) => [epoch, outcome])).toEqual([
    [1, 'lost'],
    [2, null],
  ])
  const spans = new Map(
    timeline?.spans.map((one) => [`${one.key} ${one.epoch}`, [one.parent, one.outcome]]),
  )
  expect(Object.fromEntries(spans)).toEqual({
    'queue 0': [null, 'done'],
    'charge 1': [null, 'in_doubt'],
    'whole 1': ['charge', 'done'],
    'cut 1': ['charge', 'cancelled'],
    'charge 2': [null, 'done'],
  })
  const whole = timeline?.spans.find(({ key }) => key === 'whole')
  expect(Date.parse(whole?.end ?? '') - Date.parse(whole?.start ?? '')).toBeCloseTo(600, -1)
  expect(timeline?.leaseGaps).toMatchObject([
    { afterEpoch: 1, to: timeline?.attempts[1]?.startedAt },
  ])
  expect(await readTimeline(store, { ...ADA, userId: 'eve' }, lease.runId)).toBeNull()
})
