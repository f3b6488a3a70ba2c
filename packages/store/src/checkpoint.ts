import { sql } from 'kysely'
import { FENCED, type Fenced, holds, type Lease } from './lease.ts'
import { type Db, row, type Store } from './store.ts'

/** What an agent saved to go on from, and how long the log was then. */
export type SavedCheckpoint = { readonly data: unknown; readonly sequence: number }

/**
 * Saves what the agent needs to go on from here; the last one counts. `json` is what it saves, serialised.
 * May be sent again. Guarantees: only under a live lease, and never ahead of the log. Locks only the run.
 */
export async function saveCheckpoint(
  store: Store,
  lease: Lease,
  sequence: number,
  json: string,
): Promise<{ readonly kind: 'saved' } | Fenced> {
  const saved = await row(
    store,
    sql<{ held: boolean }>`
      WITH fence AS (
        SELECT r.id, r.tenant_id FROM holdfast.runs r WHERE ${holds(lease)} FOR NO KEY UPDATE),
      kept AS (
        INSERT INTO holdfast.run_checkpoints (run_id, tenant_id, epoch, sequence, data)
        SELECT id, tenant_id, ${lease.epoch}, ${sequence}, ${json}::json FROM fence
        ON CONFLICT (run_id) DO UPDATE
          SET epoch = excluded.epoch, sequence = excluded.sequence, data = excluded.data, saved_at = clock_timestamp())
      SELECT true AS held FROM fence`,
  )
  return saved ? { kind: 'saved' } : FENCED
}

/** Index: primary key. */
export async function loadCheckpoint(db: Db, runId: string): Promise<SavedCheckpoint | null> {
  return await row(
    db,
    sql<SavedCheckpoint>`
      SELECT data, sequence FROM holdfast.run_checkpoints WHERE run_id = ${runId}`,
  )
}
