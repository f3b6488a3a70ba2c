import { appendEvents, openWakeups } from '@holdfast/store'
import type { Server } from '../server.ts'
import { atLeast, type Check } from './check.ts'
import { type ClaimedRuns, claimRuns, nextAppend, open } from './claimed-runs.ts'

const WRITERS = 8
const ROUNDS = 4
const ROUND_MS = 1500

/** A wake-up inside the writing transaction would hold a lock of the whole cluster while its commit is synced. */
export async function wakeupCommits(server: Server): Promise<Check[]> {
  await using claimed = await claimRuns(server, WRITERS)
  const off = { commits: 0, syncs: 0 }
  const on = { commits: 0, syncs: 0 }
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const [sum, wake] of [
      [off, false],
      [on, true],
    ] as const) {
      const before = await walSyncs(server)
      sum.commits += await write(claimed, wake)
      sum.syncs += (await walSyncs(server)) - before
    }
  }
  const ratio = on.commits / on.syncs / (off.commits / off.syncs)
  return [atLeast('commits in a sync with wake-ups, against those without,', ratio, 0.8, '×')]
}

async function write({ databaseUrl, runs }: ClaimedRuns, wake: boolean): Promise<number> {
  // Closed at the end of the round, so that its sessions have told their figures.
  await using store = open(databaseUrl, WRITERS)
  await using wakeups = openWakeups({
    databaseUrl,
    applicationName: 'bench',
    onError(error) {
      throw error
    },
  })
  const untilMs = performance.now() + ROUND_MS
  const commits = runs.map(async (run) => {
    let count = 0
    for (; performance.now() < untilMs; count += 1) {
      await appendEvents(store, [nextAppend(run)])
      if (wake) wakeups.publish('events', [run.lease.runId])
    }
    return count
  })
  return (await Promise.all(commits)).reduce((sum, count) => sum + count, 0)
}

async function walSyncs({ admin }: Server): Promise<number> {
  const [row] = await admin<{ syncs: string }>(
    `SELECT sum(fsyncs) AS syncs FROM pg_stat_io WHERE object = 'wal' AND backend_type = 'client backend'`,
  )
  return Number(row?.syncs)
}
