import type { Server } from './server.ts'

/** What makes the server count its statements; costs some percent, so only profiles ask for it. */
export const COUNT_STATEMENTS = {
  shared_preload_libraries: 'pg_stat_statements',
  'pg_stat_statements.track_planning': 'on',
}

const WIDEST = 12

/** The statements that took the most time since this was asked for the last time, a line each. */
export async function widestStatements({ admin }: Server): Promise<string[]> {
  await admin('CREATE EXTENSION IF NOT EXISTS pg_stat_statements')
  const found = await admin<{
    calls: string
    ms: number
    planning: number
    buffers: number
    text: string
  }>(
    `SELECT calls, total_plan_time + total_exec_time AS ms, total_plan_time AS planning,
       (shared_blks_hit + shared_blks_read)::float8 / greatest(calls, 1) AS buffers,
       left(regexp_replace(query, '\\s+', ' ', 'g'), 120) AS text
     FROM pg_stat_statements WHERE dbid <> (SELECT oid FROM pg_database WHERE datname = current_database())
     ORDER BY 2 DESC LIMIT ${WIDEST}`,
  )
  await admin('SELECT pg_stat_statements_reset()')
  return found.map(
    ({ calls, ms, planning, buffers, text }) =>
      `${Math.round(ms)} ms (${Math.round(planning)} planning), ${calls} calls, ${Math.round(buffers)} buffers each: ${text}`,
  )
}
