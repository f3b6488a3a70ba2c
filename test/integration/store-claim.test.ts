// Goal: a run is given to one at a time, and no edge is taken that the table of states does not have. Method: the
// store's own functions and plain SQL against a real database.
import { randomUUID } from 'node:crypto'
import { emptyFold, RunState, TRANSITIONS } from '@holdfast/protocol'
import { wait } from '@holdfast/std'
import {
  appendEvents,
  type Claimed,
  cancelRun,
  claimForEnding,
  claimQueued,
  openStore,
  releaseRun,
  type Store,
  takeOver,
  violations,
} from '@holdfast/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ADA, accept, claim, claimOne, finish, recordAgents } from '../support/by-hand.ts'
import { createDatabase, type TestDatabase } from '../support/database.ts'
import { type Random, seeded } from '../support/seeded.ts'
import { connect, type Sql } from '../support/sql.ts'

let database: TestDatabase
let store: Store
let sql: Sql

beforeAll(async () => {
  database = await createDatabase()
  store = openStore({ databaseUrl: database.url, applicationName: 'test', poolMax: 10 })
  sql = await connect(database.url)
  await recordAgents(store, ['demo'], { maxAttempts: 1_000_000 })
})

afterAll(async () => {
  await sql[Symbol.asyncDispose]()
  await store[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

test('eight claimers at once never get the same run', async () => {
  const ids = await Promise.all(
    Array.from({ length: 100 }, async () => (await accept(store)).runId),
  )
  const claimers = Array.from({ length: 8 }, async () => {
    const mine: Claimed[] = []
    for (;;) {
      const claimed = await claim(store, { limit: 7 })
      if (claimed.length === 0) return mine
      mine.push(...claimed)
    }
  })
  const claimed = (await Promise.all(claimers)).flat()
  expect(claimed.map(({ lease }) => lease.runId).sort()).toEqual(ids.sort())
  expect(claimed.every(({ lease, attemptsUsed }) => lease.epoch === 1 && attemptsUsed === 1)).toBe(
    true,
  )
  const [row] = await sql('SELECT count(*)::int AS attempts FROM holdfast.run_attempts')
  expect(row).toEqual({ attempts: 100 })
  expect(await violations(store)).toEqual([])
  await Promise.all(claimed.map(({ lease }) => finish(store, lease)))
})

test('a parked, a cancelled, a delayed and a foreign run are not claimed', async () => {
  const first = await accept(store)
  await accept(store, { conversationId: first.conversationId })
  const { lease } = await claimOne(store)
  expect(lease.runId).toBe(first.runId)
  const cancelled = await accept(store)
  await sql('UPDATE holdfast.runs SET cancel_requested_at = now() WHERE id = $1', [cancelled.runId])
  const delayed = await accept(store)
  await sql(`UPDATE holdfast.runs SET available_at = now() + interval '1 hour' WHERE id = $1`, [
    delayed.runId,
  ])
  const foreign = await accept(store)
  await sql(`UPDATE holdfast.runs SET agent = 'other' WHERE id = $1`, [foreign.runId])
  expect(await claim(store, { limit: 10 })).toEqual([])
  await finish(store, lease)
  expect(await claim(store, { limit: 10 })).toMatchObject([{ turn: 2 }])
})

test('a live lease is not taken over, and eight who try take an expired one once', async () => {
  await accept(store)
  const { lease } = await claimOne(store)
  const take = () =>
    takeOver(store, { owner: randomUUID(), agents: ['demo'], leaseMs: 60_000, limit: 5 })
  const of = (taken: Claimed[]) => taken.filter((one) => one.lease.runId === lease.runId)
  expect(of(await take())).toEqual([])
  await sql('UPDATE holdfast.runs SET lease_until = now() WHERE id = $1', [lease.runId])
  const taken = await Promise.all(Array.from({ length: 8 }, take))
  expect(of(taken.flat())).toMatchObject([{ lease: { epoch: 2 }, attemptsUsed: 2 }])
})

test('a row that cannot be claimed keeps no other from being claimed, taken over or ended', async () => {
  const runs = await Promise.all([accept(store), accept(store), accept(store)])
  const [bad] = runs
  // An attempt that stands where the next one would be written makes every claim of its run fail.
  const inTheWay = (epoch: number) =>
    sql(
      `INSERT INTO holdfast.run_attempts (run_id, epoch, tenant_id, runner, reason, base_sequence, ended_at, outcome)
       VALUES ($1, $2, 'acme', $3, 'first', 1, now(), 'lost')`,
      [bad?.runId, epoch, randomUUID()],
    )
  const outOfTheWay = (epoch: number) =>
    sql('DELETE FROM holdfast.run_attempts WHERE run_id = $1 AND epoch = $2', [bad?.runId, epoch])
  const good = runs.slice(1).map(({ runId }) => runId)
  const failed: Error[] = []
  const request = {
    owner: randomUUID(),
    agents: ['demo'],
    leaseMs: 60_000,
    limit: 10,
    onFailed: (error: Error) => failed.push(error),
  }
  const idsOf = (claimed: Claimed[]) => claimed.map(({ lease }) => lease.runId).sort()
  const expireAll = () =>
    sql(`UPDATE holdfast.runs SET lease_until = now() WHERE id = ANY ($1)`, [
      runs.map(({ runId }) => runId),
    ])

  await inTheWay(1)
  expect(idsOf(await claimQueued(store, request))).toEqual(good.sort())
  await outOfTheWay(1)
  expect(idsOf(await claimQueued(store, request))).toEqual([bad?.runId])
  await expireAll()
  await inTheWay(2)
  expect(idsOf(await takeOver(store, request))).toEqual(good)
  await expireAll()
  await sql(`UPDATE holdfast.runs SET cancel_requested_at = now() WHERE id = ANY ($1)`, [
    runs.map(({ runId }) => runId),
  ])
  const ending = await claimForEnding(store, request)
  expect(idsOf(ending)).toEqual(good)
  expect(failed).toHaveLength(3)
  await outOfTheWay(2)
  const last = await claimForEnding(store, request)
  for (const { lease } of [...ending, ...last]) await finish(store, lease)
})

test('a cancel that comes first wins over a hand-back', async () => {
  const { runId } = await accept(store)
  const { lease } = await claimOne(store)
  expect(await cancelRun(store, ADA, runId)).toMatchObject({ kind: 'requested' })
  const release = { command: 'hand_back', delayMs: 0, closers: [], fold: emptyFold() } as const
  expect(await releaseRun(store, lease, 1, release)).toEqual({ kind: 'cancel_pending' })
  expect(await finish(store, lease)).toMatchObject({ kind: 'finished', state: 'stopped' })
})

test('the database has the same table of states as the code', async () => {
  const rows = await sql<{ from_state: string; command: string; to_state: string }>(
    'SELECT from_state, command, to_state FROM holdfast.run_transitions',
  )
  const table = Object.entries(TRANSITIONS).flatMap(([from, commands]) =>
    Object.entries(commands).flatMap(([command, to]) =>
      to === null ? [] : [`${from} ${command} ${to}`],
    ),
  )
  expect(rows.map((row) => `${row.from_state} ${row.command} ${row.to_state}`).sort()).toEqual(
    table.sort(),
  )
})

/** What the columns must be for a run to be in a state at all. */
function columnsOf(state: RunState): string {
  const ended = state !== 'queued' && state !== 'running'
  const outcome = { succeeded: 'success', failed: 'error', stopped: 'cancelled' } as const
  return [
    `state = '${state}'`,
    `owner = ${state === 'running' ? `'${randomUUID()}'` : 'NULL'}`,
    `finished_at = ${ended ? 'now()' : 'NULL'}`,
    `outcome = ${ended ? `'${outcome[state]}'` : 'NULL'}`,
  ].join(', ')
}

/** The SQLSTATE that an update of a run in a state meets, or null when it passes. Undone in any case. */
async function refusalOf(from: RunState, update: string): Promise<unknown> {
  const { runId } = await accept(store)
  await sql('BEGIN')
  try {
    await sql('SET LOCAL session_replication_role = replica')
    await sql(
      `UPDATE holdfast.runs SET ${columnsOf(from)}, execution_epoch = 5, last_sequence = 5 WHERE id = $1`,
      [runId],
    )
    await sql('SET LOCAL session_replication_role = origin')
    await sql(`UPDATE holdfast.runs SET ${update} WHERE id = $1`, [runId])
    return null
  } catch (error) {
    return (error as { code?: unknown }).code
  } finally {
    await sql('ROLLBACK')
  }
}

const PAIRS = RunState.options.flatMap((from) => RunState.options.map((to) => [from, to] as const))

test.each(PAIRS.filter(([from, to]) => from !== to))(
  'the database lets a run go from %s to %s only if the table has it',
  async (from, to) => {
    const epoch = to === 'running' ? ', execution_epoch = 6' : ''
    const legal = Object.values<RunState | null>(TRANSITIONS[from]).includes(to)
    const ended = from !== 'queued' && from !== 'running'
    const refusal = legal ? null : ended ? 'HF001' : 'HF003'
    expect(await refusalOf(from, columnsOf(to) + epoch)).toBe(refusal)
  },
)

test.each<[string, RunState, string, string | null]>([
  ['a claim without a new epoch', 'queued', columnsOf('running'), 'HF004'],
  [
    'a claim that skips an epoch',
    'queued',
    `${columnsOf('running')}, execution_epoch = 7`,
    'HF004',
  ],
  ['a takeover', 'running', 'execution_epoch = 6', null],
  ['a takeover that skips an epoch', 'running', 'execution_epoch = 7', 'HF004'],
  ['an epoch that falls', 'running', 'execution_epoch = 4', 'HF002'],
  ['a new epoch of a waiting run', 'queued', 'execution_epoch = 6', 'HF003'],
  ['a sequence that goes back', 'running', 'last_sequence = 4', 'HF002'],
  ['a sequence that grows', 'running', 'last_sequence = 6', null],
  ['a sequence of an ended run', 'succeeded', 'last_sequence = 6', 'HF001'],
  ['another outcome of an ended run', 'failed', `outcome = 'success'`, 'HF001'],
  ['a cancel mark of an ended run', 'succeeded', 'cancel_requested_at = now()', 'HF001'],
])('the database judges %s', async (_name, from, update, refusal) => {
  expect(await refusalOf(from, update)).toBe(refusal)
})

type Tally = { written: number; refused: number; takenOver: number; handedBack: number }

/** Claims, writes, dawdles beyond its lease now and then, and hands back, until that is enough. */
async function claimer(random: Random, enough: () => boolean, tally: Tally): Promise<void> {
  const owner = randomUUID()
  const leaseMs = 40
  while (!enough()) {
    const request = { owner, agents: ['demo'], leaseMs, limit: 2 }
    const taken = await takeOver(store, request)
    tally.takenOver += taken.length
    const mine = [...taken, ...(await claim(store, { owner, leaseMs, limit: 2 }))]
    if (mine.length === 0) await wait(5)
    for (const { lease, lastSequence } of mine) {
      let base = lastSequence
      for (let flush = random.whole(1, 4); flush > 0; flush -= 1) {
        await wait(random.chance(0.3) ? random.whole(leaseMs, 2 * leaseMs) : random.whole(0, 10))
        const json = JSON.stringify({ type: 'CUSTOM', name: owner, value: lease.epoch })
        const events = Array.from({ length: random.whole(1, 5) }, () => ({ type: 'CUSTOM', json }))
        if ((await appendEvents(store, [{ lease, base, events }])).length === 0) {
          tally.refused += 1
          break
        }
        tally.written += events.length
        base += events.length
      }
      if (random.chance(0.5)) continue
      const release = { command: 'hand_back', delayMs: 0, closers: [], fold: emptyFold() } as const
      const released = await releaseRun(store, lease, base, release)
      if (released.kind === 'released') tally.handedBack += 1
    }
  }
}

test('claimers with tiny leases over few runs: logs without a gap, epochs that never fall', async () => {
  const random = seeded('tiny leases')
  await sql(
    'UPDATE holdfast.runs SET available_at = $1 WHERE state = $2 AND available_at < now()',
    ['3000-01-01', 'queued'],
  )
  await sql(`UPDATE holdfast.runs SET lease_until = '3000-01-01' WHERE state = 'running'`)
  const runs = await Promise.all(Array.from({ length: 6 }, async () => (await accept(store)).runId))
  const tally = { written: 0, refused: 0, takenOver: 0, handedBack: 0 }
  // How much that takes is the machine's affair; without some of each the test would prove nothing.
  const enough = () => tally.written > 300 && Math.min(...Object.values(tally)) > 10
  await Promise.all(Array.from({ length: 4 }, () => claimer(random, enough, tally)))
  const logs = await sql<{ n: number; low: number; high: number; falls: number; last: number }>(
    `SELECT count(*)::int AS n, min(sequence)::int AS low, max(sequence)::int AS high,
       count(*) FILTER (WHERE epoch < before)::int AS falls, r.last_sequence::int AS last
     FROM (SELECT e.*, lag(epoch) OVER (PARTITION BY run_id ORDER BY sequence) AS before
           FROM holdfast.run_events e) e
     JOIN holdfast.runs r ON r.id = e.run_id WHERE e.run_id = ANY ($1) GROUP BY r.id`,
    [runs],
  )
  expect(logs).toHaveLength(runs.length)
  for (const log of logs) {
    expect(log).toEqual({ n: log.last, low: 1, high: log.last, falls: 0, last: log.last })
  }
  expect(logs.reduce((sum, { n }) => sum + n, 0)).toBe(runs.length + tally.written)
  expect(await violations(store)).toEqual([])
})
