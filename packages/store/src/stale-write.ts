import { sql } from 'kysely'
import type { Lease } from './lease.ts'
import { rows, type Store } from './store.ts'

/**
 * The ledger's row for a write that the fence refused: the only thing that a fenced attempt still writes. How late it
 * was counts from the end of the attempt's right: of its lease, or of the attempt when somebody else has the run.
 * Index: primary keys of runs and run_attempts.
 * @param refusedMsAgo how long the row could not be written, which is not part of it
 * @returns false, and nothing is written, when the attempt itself had ended the run or given it back: then the refused
 *   write only came after a lost reply, or beside the end
 */
export async function recordStaleWrite(
  store: Store,
  lease: Lease,
  operation: string,
  refusedMsAgo = 0,
): Promise<boolean> {
  const recorded = await rows(
    store,
    sql`INSERT INTO holdfast.stale_writes (run_id, tenant_id, operation, epoch, current_epoch, runner, late_ms)
        SELECT r.id, r.tenant_id, ${operation}, ${lease.epoch}, r.execution_epoch, ${lease.owner}::uuid,
          greatest(0, extract(epoch FROM clock_timestamp() - coalesce(a.ended_at, r.lease_until)) * 1000 - ${refusedMsAgo})::bigint
        FROM holdfast.runs r LEFT JOIN holdfast.run_attempts a ON a.run_id = r.id AND a.epoch = ${lease.epoch}
        WHERE r.id = ${lease.runId} AND (a.outcome IS NULL OR a.outcome = 'lost') RETURNING id`,
  )
  return recorded.length > 0
}

/** Forgets the oldest rows of the ledger, at most `limit` that are older than `ageMs`. Index: primary key. */
export async function pruneStaleWrites(store: Store, ageMs: number, limit: number): Promise<void> {
  await rows(
    store,
    sql`DELETE FROM holdfast.stale_writes
        WHERE id = ANY (ARRAY(SELECT id FROM holdfast.stale_writes ORDER BY id LIMIT ${limit}))
          AND refused_at < clock_timestamp() - ${ageMs} * interval '1 ms'`,
  )
}
