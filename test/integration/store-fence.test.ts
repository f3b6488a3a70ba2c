// Goal: who has lost a run writes nothing more for it. Method: the store's own functions against a real
// database; leases are ended by SQL, and whole tables are compared before and after.
import { randomUUID } from 'node:crypto'
import { emptyFold, endingOf, type Message } from '@holdfast/protocol'
import {
  appendEvents,
  type Claimed,
  claimForEnding,
  finishRun,
  type Lease,
  openStore,
  readOwnership,
  recordStaleWrite,
  releaseRun,
  renewLeases,
  type Store,
  saveFold,
  takeOver,
  violations,
} from '@holdfast/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import {
  accept,
  append,
  claimOne,
  finish,
  logOf,
  message,
  recordAgents,
} from '../support/by-hand.ts'
import { createDatabase, type TestDatabase } from '../support/database.ts'
import { connect, type Sql } from '../support/sql.ts'

const HOUR_MS = 3_600_000
/** Due again only when the test is over. */
const RELEASE = { delayMs: HOUR_MS, closers: [], fold: emptyFold() }

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

/** A running run whose log has 5 events. */
async function held(): Promise<Claimed> {
  await accept(store)
  const claimed = await claimOne(store, HOUR_MS)
  const { lease } = claimed
  expect(await append(store, lease, 1, message(`m-${lease.runId}`, 3))).toBe(true)
  return claimed
}

async function expire({ runId }: Lease): Promise<void> {
  await sql(`UPDATE holdfast.runs SET lease_until = now() - interval '1 second' WHERE id = $1`, [
    runId,
  ])
}

function take(): Promise<Claimed[]> {
  return takeOver(store, { owner: randomUUID(), agents: ['demo'], leaseMs: HOUR_MS, limit: 100 })
}

/** Every row of every table, as text. */
async function everything(): Promise<unknown> {
  const tables = await sql<{ name: string }>(
    `SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = 'holdfast' AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1`,
  )
  expect(tables.length).toBeGreaterThan(10)
  const dump: Record<string, unknown> = {}
  for (const { name } of tables) {
    dump[name] = await sql(`SELECT t::text AS row FROM ${name} t ORDER BY 1`)
  }
  return dump
}

type Loss = (lease: Lease) => Promise<unknown>

const LOSSES: Readonly<Record<string, Loss>> = {
  'its lease has passed': expire,
  'another attempt has taken it over': async (lease) => {
    await expire(lease)
    expect((await take()).map((taken) => taken.lease.epoch)).toContain(lease.epoch + 1)
  },
  'it was claimed to be ended': async (lease) => {
    await sql('UPDATE holdfast.runs SET cancel_requested_at = now() WHERE id = $1', [lease.runId])
    await expire(lease)
    const request = { owner: randomUUID(), leaseMs: HOUR_MS, limit: 10 }
    expect(await claimForEnding(store, request)).toMatchObject([{ cause: 'cancel' }])
  },
  'it was handed back': (lease) =>
    releaseRun(store, lease, 5, { ...RELEASE, command: 'hand_back' }),
  'it was handed back and claimed again': async (lease) => {
    await releaseRun(store, lease, 5, { ...RELEASE, delayMs: 0, command: 'hand_back' })
    // As many attempts are used up as before; only the epoch tells them apart.
    expect(await claimOne(store, HOUR_MS)).toMatchObject({ attemptsUsed: 1, lease: { epoch: 2 } })
  },
  'it has ended': (lease) => finish(store, lease),
}

type Write = (lease: Lease, length: number) => Promise<unknown>

/** What each write answers when it is refused. */
const WRITES: Readonly<Record<string, [Write, refusal: unknown]>> = {
  append: [(lease, length) => append(store, lease, length, [{ type: 'CUSTOM' }]), false],
  finish: [(lease, length) => finish(store, lease, undefined, length), { kind: 'fenced' }],
  'hand back': [
    (lease, length) => releaseRun(store, lease, length, { ...RELEASE, command: 'hand_back' }),
    { kind: 'fenced' },
  ],
  retry: [
    (lease, length) => releaseRun(store, lease, length, { ...RELEASE, command: 'retry' }),
    { kind: 'fenced' },
  ],
  'save the fold': [
    (lease, length) => saveFold(store, lease, length, emptyFold()),
    { kind: 'fenced' },
  ],
}

const CASES = Object.keys(WRITES).flatMap((write) =>
  Object.keys(LOSSES).map((loss) => [write, loss] as const),
)

test.each(CASES)('%s is refused without a trace when %s', async (write, loss) => {
  const { lease } = await held()
  await LOSSES[loss]?.(lease)
  const length = (await logOf(store, lease.runId)).length
  const [attempt, refusal] = WRITES[write] ?? [() => Promise.resolve(), 'no such write']
  const before = await everything()
  expect(await attempt(lease, length)).toEqual(refusal)
  expect(await everything()).toEqual(before)
})

test.each(Object.keys(WRITES))('%s goes through while the lease holds', async (write) => {
  const { lease } = await held()
  const [attempt, refusal] = WRITES[write] ?? [() => Promise.resolve('no such write'), '']
  expect(await attempt(lease, 5)).not.toEqual(refusal)
})

type Lock = (other: Sql, lease: Lease) => Promise<unknown>

const conversationLocked: Lock = (other, { conversationId }) =>
  other('SELECT FROM holdfast.conversations WHERE id = $1 FOR UPDATE', [conversationId])
const runChanged: Lock = (other, { runId }) =>
  other('UPDATE holdfast.runs SET cancel_requested_at = now() WHERE id = $1', [runId])

/** What stands in the way of each write while its lease passes. */
const LOCKS: readonly (readonly [write: string, lock: Lock])[] = [
  ['finish', conversationLocked],
  ['hand back', conversationLocked],
  ['append', runChanged],
  ['save the fold', runChanged],
]

test.each(LOCKS)('%s that waited for a lock beyond its lease is refused', async (write, lock) => {
  const { lease } = await held()
  await sql(
    `UPDATE holdfast.runs SET lease_until = clock_timestamp() + interval '300 ms' WHERE id = $1`,
    [lease.runId],
  )
  const [attempt, refusal] = WRITES[write] ?? [() => Promise.resolve(), 'no such write']
  await using other = await connect(database.url)
  await other('BEGIN')
  await lock(other, lease)
  const attempted = attempt(lease, 5)
  await other('SELECT pg_sleep(0.5)')
  await other('COMMIT')
  expect(await attempted).toEqual(refusal)
  expect(await logOf(store, lease.runId)).toHaveLength(5)
})

test('an ending that cannot be written in full is not written at all', async () => {
  const { lease } = await held()
  const before = await everything()
  const ending = endingOf({
    fold: emptyFold(),
    cause: { kind: 'success' },
    threadId: 't',
    runId: 'r',
    storedIds: new Set(),
    frontEndTools: new Set(),
    openCalls: [],
    followed: false,
    mintId: randomUUID,
  })
  const unfit = { id: randomUUID() } as Message
  const messages = [{ message: unfit, status: 'complete' as const }]
  await expect(finishRun(store, lease, 5, () => ({ ...ending, messages }))).rejects.toThrow('null')
  expect(await everything()).toEqual(before)
})

test.each([4, 6])(
  'a wrong length of the log, %i instead of 5, is refused without a trace',
  async (length) => {
    const { lease } = await held()
    const before = await everything()
    const mismatch = { kind: 'sequence_mismatch', lastSequence: 5 }
    expect(await append(store, lease, length, [{ type: 'CUSTOM' }])).toBe(false)
    expect(await finish(store, lease, undefined, length)).toEqual(mismatch)
    for (const command of ['hand_back', 'retry'] as const) {
      expect(await releaseRun(store, lease, length, { ...RELEASE, command })).toEqual(mismatch)
    }
    expect(await everything()).toEqual(before)
  },
)

test('an append that is sent twice is written once', async () => {
  const { lease } = await held()
  const event = { type: 'CUSTOM', name: 'once', value: 1 }
  const both = await Promise.all([
    append(store, lease, 5, [event]),
    append(store, lease, 5, [event]),
  ])
  expect(both.filter(Boolean)).toHaveLength(1)
  expect(await logOf(store, lease.runId)).toHaveLength(6)
})

test('refused runs of a batch do not hold their neighbours back', async () => {
  const all = [await held(), await held(), await held(), await held(), await held()]
  const leases = all.map(({ lease }) => lease)
  const [stale, passed] = [leases[1], leases[3]]
  if (!stale || !passed) throw new Error('five runs are held')
  await expire(stale)
  await take()
  await expire(passed)
  const batch = leases.map((lease) => ({
    lease,
    base: 5,
    events: [1, 2].map((n) => ({ type: 'CUSTOM', json: JSON.stringify({ type: 'CUSTOM', n }) })),
  }))
  const written = (await appendEvents(store, batch)).map(({ runId }) => runId)
  const lengths = await Promise.all(
    leases.map(async ({ runId }) => (await logOf(store, runId)).length),
  )
  expect(lengths).toEqual([7, 5, 7, 5, 7])
  const holding = [leases[0], leases[2], leases[4]].map((lease) => lease?.runId)
  expect(new Set(written)).toEqual(new Set(holding))
})

test('two attempts of one run in one batch: only the one that holds it writes', async () => {
  const { lease: old } = await held()
  await expire(old)
  const lease = (await take()).find((taken) => taken.lease.runId === old.runId)?.lease
  if (!lease) throw new Error('it was not taken over')
  const line = (who: string) => [{ type: 'CUSTOM', json: `{"type":"CUSTOM","name":"${who}"}` }]
  const answer = await appendEvents(store, [
    { lease: old, base: 5, events: line('old') },
    { lease, base: 5, events: line('new') },
  ])
  expect(answer).toMatchObject([{ runId: lease.runId, epoch: lease.epoch }])
  expect((await logOf(store, lease.runId)).at(-1)).toMatchObject({ name: 'new' })
})

test('an earlier fold never replaces a later one', async () => {
  const { lease } = await held()
  const foldOf = (word: string) => ({ ...emptyFold(), state: word })
  await saveFold(store, lease, 5, foldOf('later'))
  await saveFold(store, lease, 3, foldOf('earlier'))
  const folds = await sql('SELECT sequence::int, fold FROM holdfast.run_folds WHERE run_id = $1', [
    lease.runId,
  ])
  expect(folds).toMatchObject([{ sequence: 5, fold: { state: 'later' } }])
})

async function ledgerOf({ runId }: Lease) {
  return await sql<{ epoch: number; current_epoch: number; late_ms: number }>(
    `SELECT operation, epoch, current_epoch, runner, tenant_id, late_ms::int FROM holdfast.stale_writes
     WHERE run_id = $1 ORDER BY id`,
    [runId],
  )
}

test('a refused write is kept in the ledger with both epochs, its runner and how late it was', async () => {
  const { lease } = await held()
  await expire(lease)
  expect(await recordStaleWrite(store, lease, 'renew')).toBe(true)
  await take()
  // The heir's lease lives on; what counts is since when this one has none.
  await sql(
    `UPDATE holdfast.run_attempts SET ended_at = ended_at - interval '5 seconds' WHERE run_id = $1 AND epoch = 1`,
    [lease.runId],
  )
  expect(await recordStaleWrite(store, lease, 'append')).toBe(true)
  // A row that could only be written later is no later write.
  expect(await recordStaleWrite(store, lease, 'fold', 4000)).toBe(true)
  const common = { epoch: 1, runner: lease.owner, tenant_id: 'acme' }
  const ledger = await ledgerOf(lease)
  expect(ledger).toMatchObject([
    { ...common, operation: 'renew', current_epoch: 1 },
    { ...common, operation: 'append', current_epoch: 2 },
    { ...common, operation: 'fold', current_epoch: 2 },
  ])
  for (const [at, leastMs] of [1000, 5000, 1000].entries()) {
    expect(ledger[at]?.late_ms).toBeGreaterThanOrEqual(leastMs)
    expect(ledger[at]?.late_ms).toBeLessThan(leastMs + 3900)
  }
})

test.each(['it was handed back', 'it has ended'])(
  'what an attempt writes beside its own end is no stale write when %s',
  async (loss) => {
    const { lease } = await held()
    await LOSSES[loss]?.(lease)
    expect(await recordStaleWrite(store, lease, 'fold')).toBe(false)
    expect(await ledgerOf(lease)).toEqual([])
    expect(await renewLeases(store, [lease], HOUR_MS)).toMatchObject([{ kind: 'over' }])
  },
)

test('whether a write landed whose reply was lost can be decided after others took over', async () => {
  const { lease } = await held()
  await expire(lease)
  const heir = (await take()).find((taken) => taken.lease.runId === lease.runId)?.lease
  if (!heir) throw new Error('it was not taken over')
  await append(store, heir, 5, message(`later-${heir.runId}`, 2))
  expect(await readOwnership(store, [lease])).toMatchObject([
    { epoch: 1, held: false, ownSequence: 5, lastSequence: 8, outcome: 'lost' },
  ])
  expect(await readOwnership(store, [heir])).toMatchObject([
    { epoch: 2, held: true, ownSequence: 8, lastSequence: 8, outcome: null },
  ])
})

test('renewal keeps what is held, tells what is lost, and never waits for a locked row', async () => {
  const [kept, passed, taken, locked] = [await held(), await held(), await held(), await held()]
  await expire(taken.lease)
  await take()
  await expire(passed.lease)
  const other = await connect(database.url)
  await other('BEGIN')
  await other('SELECT 1 FROM holdfast.runs WHERE id = $1 FOR NO KEY UPDATE', [locked.lease.runId])
  const leases = [kept, passed, taken, locked].map(({ lease }) => lease)
  // Had it waited for the locked row, it would fail by the lock limit of a second.
  const answers = await renewLeases(store, leases, 2 * HOUR_MS)
  expect(answers.map(({ kind }) => kind)).toEqual(['renewed', 'lost', 'lost', 'busy'])
  expect(answers[2]).toMatchObject({ currentEpoch: taken.lease.epoch + 1 })
  await other('COMMIT')
  await other[Symbol.asyncDispose]()
  expect(await renewLeases(store, [locked.lease], 2 * HOUR_MS)).toMatchObject([{ kind: 'renewed' }])
  const [row] = await sql(
    `SELECT lease_until > now() + interval '90 minutes' AS longer FROM holdfast.runs WHERE id = $1`,
    [kept.lease.runId],
  )
  expect(row).toEqual({ longer: true })
  const owned = await readOwnership(store, [passed.lease])
  expect(owned).toMatchObject([{ held: false, lastSequence: 5 }])
  expect(owned[0]?.lateMs).toBeGreaterThanOrEqual(1000)
  await take()
})

test('a takeover waits for an append that is not committed yet, and then builds on it', async () => {
  const { lease } = await held()
  await sql(
    `UPDATE holdfast.runs SET lease_until = clock_timestamp() + interval '300 ms' WHERE id = $1`,
    [lease.runId],
  )
  const writer = await connect(database.url)
  await writer('BEGIN')
  const grown = await writer(
    `UPDATE holdfast.runs SET last_sequence = 6
     WHERE id = $1 AND execution_epoch = $2 AND lease_until > clock_timestamp() RETURNING id`,
    [lease.runId, lease.epoch],
  )
  expect(grown).toHaveLength(1)
  await writer(
    `INSERT INTO holdfast.run_events (run_id, sequence, epoch, tenant_id, type, payload)
     VALUES ($1, 6, $2, 'acme', 'CUSTOM', '{"type":"CUSTOM","name":"last words"}')`,
    [lease.runId, lease.epoch],
  )
  await writer('SELECT pg_sleep(0.35)')
  expect(await take()).toEqual([])
  await writer('COMMIT')
  await writer[Symbol.asyncDispose]()
  const [taken] = await take()
  expect(taken).toMatchObject({ lastSequence: 6, reason: 'takeover', lease: { epoch: 2 } })
  const attempts = await sql(
    `SELECT epoch, outcome, base_sequence::int FROM holdfast.run_attempts WHERE run_id = $1 ORDER BY epoch`,
    [lease.runId],
  )
  expect(attempts).toEqual([
    { epoch: 1, outcome: 'lost', base_sequence: 1 },
    { epoch: 2, outcome: null, base_sequence: 6 },
  ])
})
