// Goal: leases do not depend on a connection being free. Method: a lock that every attempt waits for while it begins,
// so that all connections of the runner's pool are taken for several leases.
import { expect, test } from 'vitest'
import { send } from '../support/api.ts'
import { checkRun } from '../support/checker.ts'
import { startHoldfast } from '../support/holdfast.ts'
import { connect } from '../support/sql.ts'
import { frozen, outcomes, until } from './observe.ts'

const LEASE_MS = 2000
const POOL = 8
const RUNS = 20

test('a runner whose connections are all taken for several leases loses none', async () => {
  await using holdfast = await startHoldfast({ env: { LEASE_SECONDS: `${LEASE_MS / 1000}` } })
  await using locker = await connect(holdfast.databaseUrl)
  await using sql = await connect(holdfast.databaseUrl)
  const [runner] = holdfast.runners
  if (!runner) throw new Error('there is a runner')
  const runIds: string[] = []
  await frozen(runner, async () => {
    for (let n = 0; n < RUNS; n += 1) runIds.push((await send(holdfast.url, 'hello')).runId)
    await locker('BEGIN')
    await locker('LOCK TABLE holdfast.run_inputs IN ACCESS EXCLUSIVE MODE')
  })
  const leases = async () => {
    const [found] = await sql<{ held: number; first: string }>(
      `SELECT count(*)::int AS held, min(lease_until)::text AS first FROM holdfast.runs
       WHERE state = 'running' AND lease_until > clock_timestamp() AND id = ANY ($1)`,
      [runIds],
    )
    return found
  }
  await until('every connection waits for the lock', async () => {
    const [found] = await sql<{ n: number }>(
      `SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database()
         AND application_name = 'holdfast runner' AND wait_event_type = 'Lock'`,
    )
    return (found?.n ?? 0) >= POOL
  })
  const before = await until('all runs are claimed', async () => {
    const found = await leases()
    return found?.held === RUNS && found
  })
  await until('no lease is the same as three leases ago', async () => {
    const [found] = await sql<{ longer: boolean }>(
      `SELECT min(lease_until) > $1::timestamptz + $2 * interval '1 ms' AS longer
       FROM holdfast.runs WHERE id = ANY ($3)`,
      [before.first, 3 * LEASE_MS, runIds],
    )
    return found?.longer
  })
  expect(await leases()).toMatchObject({ held: RUNS })
  await locker('COMMIT')
  for (const runId of runIds) {
    const { run } = await checkRun(holdfast.url, runId)
    expect(outcomes(run)).toEqual(['succeeded'])
  }
})
