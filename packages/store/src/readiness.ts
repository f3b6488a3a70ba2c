import { sql } from 'kysely'
import { type SchemaStatus, schemaStatus } from './migrate.ts'
import { row, rows, type Store } from './store.ts'

/** Whether a process may serve: the schema is this version's and the log has room for the days to come. */
export async function readiness(
  store: Store,
): Promise<{ schema: SchemaStatus; partitionsAheadDays: number }> {
  const schema = await schemaStatus(store)
  if (schema !== 'current') return { schema, partitionsAheadDays: 0 }
  const ahead = await row(
    store,
    sql<{ days: number }>`SELECT holdfast.partition_days_ahead() AS days`,
  )
  return { schema, partitionsAheadDays: ahead?.days ?? 0 }
}

/** Makes the log's partitions up to `days` ahead. */
export async function ensurePartitions(store: Store, days: number): Promise<void> {
  await rows(store, sql`SELECT holdfast.ensure_partitions(${days})`)
}

/**
 * Forgets the oldest day of the log that ended more than `days` days ago and has no unfinished run. One table a call, and
 * none when somebody holds the log for longer than a moment. `null`: there was none.
 */
export async function dropPartition(store: Store, days: number): Promise<string | null> {
  const dropped = await row(
    store,
    sql<{ name: string | null }>`SELECT holdfast.drop_partition(${days}) AS name`,
  )
  return dropped?.name ?? null
}

/** Figures of the whole installation, for /metrics. Unfinished runs are counted by partial indexes. */
export async function queueFigures(store: Store): Promise<{
  runs: { state: string; count: number }[]
  queueOldestSeconds: number
  oldestXminAgeSeconds: number
}> {
  const runs = await rows(
    store,
    sql<{ state: string; count: number }>`
      SELECT 'queued' AS state, count(*) AS count FROM holdfast.runs WHERE state = 'queued'
      UNION ALL SELECT 'running', count(*) FROM holdfast.runs WHERE state = 'running'`,
  )
  const figures = await row(
    store,
    sql<{ queue_oldest: number; xmin_age: number }>`
      SELECT
        coalesce((SELECT extract(epoch FROM clock_timestamp() - min(available_at)) FROM holdfast.runs
                  WHERE state = 'queued' AND available_at <= clock_timestamp()), 0) AS queue_oldest,
        coalesce((SELECT max(extract(epoch FROM clock_timestamp() - xact_start)) FROM pg_stat_activity
                  WHERE backend_xmin IS NOT NULL), 0) AS xmin_age`,
  )
  return {
    runs,
    queueOldestSeconds: Number(figures?.queue_oldest ?? 0),
    oldestXminAgeSeconds: Number(figures?.xmin_age ?? 0),
  }
}
