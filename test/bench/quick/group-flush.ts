import { wait } from '@holdfast/std'
import { appendEvents } from '@holdfast/store'
import { connect } from '../../support/sql.ts'
import { serverCpuSeconds } from '../process-figures.ts'
import type { Server } from '../server.ts'
import { atLeast, type Check } from './check.ts'
import { type ClaimedRuns, claimRuns, nextAppend, open } from './claimed-runs.ts'
import { sessionsEnded } from './ended-sessions.ts'

const RUNS = 250
const ROUNDS = 4
const GROUP_FLUSHES = 24
const SINGLES = 1000
const CONNECTIONS = 4

/**
 * What an event costs the database when a flush carries many runs, and when each has a transaction of its own. In
 * processor time, which a busy machine changes far less than how long things take.
 */
export async function groupFlush(server: Server): Promise<Check[]> {
  await using claimed = await claimRuns(server, RUNS)
  const spent = { grouped: 0, single: 0 }
  for (let round = 0; round < ROUNDS; round += 1) {
    spent.grouped += await cpuOf(server, () => flushTogether(claimed))
    spent.single += await cpuOf(server, () => flushEach(claimed))
  }
  const grouped = spent.grouped / (ROUNDS * GROUP_FLUSHES * RUNS)
  const single = spent.single / (ROUNDS * SINGLES)
  return [
    atLeast(
      'a transaction for each event, against one flush for all runs,',
      single / grouped,
      5,
      '×',
    ),
    atLeast('the share of appends that stay HOT', await hotShare(claimed), 0.9, ''),
  ]
}

const APPENDS = ROUNDS * (GROUP_FLUSHES * RUNS + SINGLES)
const STATISTICS_MS_MAX = 10_000

async function cpuOf(server: Server, work: () => Promise<void>): Promise<number> {
  const before = await settledCpuSeconds(server)
  await work()
  return (await settledCpuSeconds(server)) - before
}

/** When the sessions have ended and the server has taken note of their times. */
async function settledCpuSeconds({ admin, pid }: Server): Promise<number> {
  await sessionsEnded(admin)
  for (let known = Number.NaN; ; ) {
    const now = await serverCpuSeconds(pid)
    if (now === known) return now
    known = now
    await wait(50)
  }
}

// Each on connections of its own, which say what they did when they close.
async function flushTogether({ databaseUrl, runs }: ClaimedRuns) {
  await using store = open(databaseUrl, 1)
  for (let flush = 0; flush < GROUP_FLUSHES; flush += 1) {
    await written(appendEvents(store, runs.map(nextAppend)), runs.length)
  }
}

async function flushEach({ databaseUrl, runs }: ClaimedRuns) {
  await using store = open(databaseUrl, CONNECTIONS)
  const writers = Array.from({ length: CONNECTIONS }, async (_, writer) => {
    for (let n = writer; n < SINGLES; n += CONNECTIONS) {
      const run = runs[n % runs.length]
      if (run) await written(appendEvents(store, [nextAppend(run)]), 1)
    }
  })
  await Promise.all(writers)
}

async function written(appending: Promise<unknown[]>, count: number) {
  const { length } = await appending
  if (length !== count) throw new Error(`${length} of ${count} runs were written`)
}

async function hotShare({ databaseUrl }: ClaimedRuns): Promise<number> {
  await using sql = await connect(databaseUrl)
  const late = AbortSignal.timeout(STATISTICS_MS_MAX)
  for (;;) {
    // The claim before the appends changed what is in indexes, and is not one of them.
    const [row] = await sql<{ updates: number; hot: number }>(
      `SELECT (n_tup_upd - ${RUNS})::int AS updates, n_tup_hot_upd::int AS hot FROM pg_stat_user_tables
       WHERE schemaname = 'holdfast' AND relname = 'runs'`,
    )
    if (row && row.updates >= APPENDS) return row.hot / row.updates
    // A session tells what it did when it ends, which is a moment after its client left.
    await wait(20, late)
  }
}
