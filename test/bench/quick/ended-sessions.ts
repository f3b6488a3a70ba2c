import { wait } from '@holdfast/std'
import type { Sql } from '../../support/sql.ts'

const SESSIONS_MS_MAX = 10_000

/** A session tells what it did before it is gone, a moment after its client left: waits for all others to be gone. */
export async function sessionsEnded(admin: Sql): Promise<void> {
  const late = AbortSignal.timeout(SESSIONS_MS_MAX)
  for (;;) {
    const [others] = await admin<{ count: number }>(
      `SELECT count(*)::int AS count FROM pg_stat_activity
       WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`,
    )
    if (others?.count === 0) return
    await wait(20, late)
  }
}
