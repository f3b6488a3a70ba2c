// Goal: there is no unfinished row that nothing finds. Method: rows as crashes and bugs could have left them, planted
// while no runner is there; then one real runner, and nothing else.
import { randomUUID } from 'node:crypto'
import type { Store } from '@holdfast/store'
import { expect, test } from 'vitest'
import { accept, claimOne, recordAgents } from '../support/by-hand.ts'
import { checkRun } from '../support/checker.ts'
import { startHoldfast } from '../support/holdfast.ts'
import { connect, type Sql } from '../support/sql.ts'
import { until } from './observe.ts'

const DEV = { tenantId: 'dev', userId: 'dev', role: 'operator' } as const

type Planted = { runId: string; state: string; code?: string; epoch: number }

/** A run that was claimed by a runner that never came to its first event, with `columns` set. */
async function claimed(store: Store, sql: Sql, columns: string): Promise<string> {
  const { runId } = await accept(store, {}, DEV)
  const { lease } = await claimOne(store, 60_000)
  if (lease.runId !== runId) throw new Error('another run was due')
  await set(sql, runId, columns)
  return runId
}

async function queued(store: Store, sql: Sql, columns: string): Promise<string> {
  const { runId } = await accept(store, {}, DEV)
  await set(sql, runId, columns)
  return runId
}

async function set(sql: Sql, runId: string, columns: string) {
  await sql(`UPDATE holdfast.runs SET ${columns} WHERE id = $1`, [runId])
}

const PASSED = `lease_until = now() - interval '1 second'`
const LATER = `now() + interval '1 hour'`

test('every kind of row that nobody covers is found by the sweep, also beside one that cannot be swept', async () => {
  await using holdfast = await startHoldfast({ runners: 0 })
  await using sql = await connect(holdfast.databaseUrl)
  const { store } = holdfast
  await recordAgents(store)
  const stuck = await claimed(store, sql, PASSED)
  // Where the next attempt would be written there is one already: each claim of this run fails.
  await sql(
    `INSERT INTO holdfast.run_attempts (run_id, epoch, tenant_id, runner, reason, base_sequence, ended_at, outcome)
     VALUES ($1, 2, 'dev', $2, 'takeover', 1, now(), 'lost')`,
    [stuck, randomUUID()],
  )
  const planted: Planted[] = [
    {
      runId: await claimed(store, sql, 'lease_until = NULL, owner = NULL'),
      state: 'succeeded',
      epoch: 2,
    },
    { runId: await claimed(store, sql, PASSED), state: 'succeeded', epoch: 2 },
    {
      runId: await claimed(store, sql, `${PASSED}, cancel_requested_at = now()`),
      state: 'stopped',
      epoch: 2,
    },
    {
      runId: await claimed(store, sql, `${PASSED}, max_attempts = 1`),
      state: 'failed',
      code: 'attempts_exhausted',
      epoch: 2,
    },
    {
      runId: await claimed(store, sql, `${PASSED}, on_lost = 'fail'`),
      state: 'failed',
      code: 'runner_lost',
      epoch: 2,
    },
    {
      runId: await claimed(store, sql, `${PASSED}, deadline_at = now()`),
      state: 'failed',
      code: 'deadline_exceeded',
      epoch: 2,
    },
    {
      runId: await claimed(store, sql, `${PASSED}, deadline_at = NULL`),
      state: 'failed',
      code: 'deadline_exceeded',
      epoch: 2,
    },
    {
      runId: await queued(store, sql, `available_at = ${LATER}, queue_until = now()`),
      state: 'failed',
      code: 'queue_timeout',
      epoch: 0,
    },
    {
      runId: await queued(store, sql, `available_at = ${LATER}, cancel_requested_at = now()`),
      state: 'stopped',
      epoch: 0,
    },
    {
      runId: await queued(store, sql, `available_at = 'infinity', queue_until = NULL`),
      state: 'succeeded',
      epoch: 1,
    },
  ]
  const runner = await holdfast.startRunner()
  for (const { runId, state, code, epoch } of planted) {
    const { run } = await checkRun(holdfast.url, runId)
    expect(run).toMatchObject({ state, epoch, error: code ? { code } : null })
  }
  await until('the sweep complains of the row that it cannot take', () =>
    runner.log().includes('a sweep failed'),
  )
  await sql('DELETE FROM holdfast.run_attempts WHERE run_id = $1 AND epoch = 2', [stuck])
  const { run } = await checkRun(holdfast.url, stuck)
  expect(run).toMatchObject({ state: 'succeeded', epoch: 2 })
})
