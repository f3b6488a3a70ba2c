import { connect } from '../support/sql.ts'
import {
  cpuSeconds,
  machineBusySeconds,
  residentBytes,
  serverCpuSeconds,
} from './process-figures.ts'
import type { Server } from './server.ts'

/** What a stretch of time cost. Processor time is in cores: seconds used in each second. */
export type Figures = {
  seconds: number
  /** `postgres`, the processes by their names, and `bench`, the load's own. */
  cores: Record<string, number>
  /** Used by nobody of these: how noisy the machine was. */
  otherCores: number
  residentMb: Record<string, number>
  walBytes: number
  walSyncs: number
  commits: number
  /** Of the updates of `holdfast.runs`; NaN where there is no such table or no update. */
  hotShare: number
  deadTuples: number
}

export type Meter = { stop(): Promise<Figures> }

type Watched = { server: Server; databaseUrl: string; processes: Record<string, number> }

/** Measures from now on until it is stopped. */
export async function startMeter(watched: Watched): Promise<Meter> {
  const before = await look(watched)
  return {
    async stop() {
      const after = await look(watched)
      const seconds = (after.atMs - before.atMs) / 1000
      const cores = Object.fromEntries(
        Object.entries(after.cpu).map(([name, used]) => [
          name,
          (used - (before.cpu[name] ?? 0)) / seconds,
        ]),
      )
      const known = Object.values(cores).reduce((sum, each) => sum + each, 0)
      const updates = after.updates - before.updates
      return {
        seconds,
        cores,
        otherCores: Math.max(0, (after.busy - before.busy) / seconds - known),
        residentMb: after.residentMb,
        walBytes: after.walBytes - before.walBytes,
        walSyncs: after.walSyncs - before.walSyncs,
        commits: after.commits - before.commits,
        hotShare: (after.hotUpdates - before.hotUpdates) / updates,
        deadTuples: after.deadTuples,
      }
    },
  }
}

async function look({ server, databaseUrl, processes }: Watched) {
  const pids = Object.entries({ ...processes, bench: process.pid })
  const [database, table, postgres, busy, ...used] = await Promise.all([
    databaseFigures(server, databaseUrl),
    tableFigures(databaseUrl),
    serverCpuSeconds(server.pid),
    machineBusySeconds(),
    ...pids.map(([, pid]) => cpuSeconds(pid)),
  ])
  const resident = await Promise.all(pids.map(([, pid]) => residentBytes(pid)))
  const byName = (values: readonly number[], scale: number) =>
    Object.fromEntries(pids.map(([name], index) => [name, (values[index] ?? 0) / scale]))
  return {
    atMs: performance.now(),
    cpu: { postgres, ...byName(used, 1) } as Record<string, number>,
    residentMb: byName(resident, 1e6),
    busy,
    ...database,
    ...table,
  }
}

async function databaseFigures({ admin }: Server, databaseUrl: string) {
  const [row] = await admin<{ wal: string; syncs: string; commits: string }>(
    `SELECT pg_current_wal_insert_lsn() - '0/0' AS wal,
       (SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal') AS syncs,
       (SELECT xact_commit FROM pg_stat_database WHERE datname = $1) AS commits`,
    [new URL(databaseUrl).pathname.slice(1)],
  )
  return {
    walBytes: Number(row?.wal),
    walSyncs: Number(row?.syncs),
    commits: Number(row?.commits),
  }
}

async function tableFigures(databaseUrl: string) {
  await using sql = await connect(databaseUrl)
  const [row] = await sql<{ updates: string; hot: string; dead: string }>(
    `SELECT n_tup_upd AS updates, n_tup_hot_upd AS hot, n_dead_tup AS dead
     FROM pg_stat_user_tables WHERE schemaname = 'holdfast' AND relname = 'runs'`,
  )
  return {
    updates: Number(row?.updates ?? 0),
    hotUpdates: Number(row?.hot ?? 0),
    deadTuples: Number(row?.dead ?? 0),
  }
}
