import { type AgUiEvent, emptyFold, type Fold, foldEvents } from '@holdfast/protocol'
import { sql } from 'kysely'
import { FENCED, type Fenced, holds, type Lease } from './lease.ts'
import { type Db, row, rows, type Store } from './store.ts'

/**
 * Saves the running answer as far as `sequence`, so that a join costs the tail and not the run.
 * Guarantees: only under a live lease, and never replaces a later one. Locks only the run.
 */
export async function saveFold(
  store: Store,
  lease: Lease,
  sequence: number,
  fold: Fold,
): Promise<{ kind: 'saved' } | Fenced> {
  const saved = await rows(
    store,
    sql<{ held: boolean }>`
      WITH fence AS (
        SELECT r.id, r.tenant_id FROM holdfast.runs r WHERE ${holds(lease)} FOR NO KEY UPDATE),
      kept AS (
        INSERT INTO holdfast.run_folds (run_id, tenant_id, epoch, sequence, fold)
        SELECT id, tenant_id, ${lease.epoch}, ${sequence}, ${JSON.stringify(fold)}::json FROM fence
        ON CONFLICT (run_id) DO UPDATE
          SET epoch = excluded.epoch, sequence = excluded.sequence, fold = excluded.fold, saved_at = clock_timestamp()
          WHERE run_folds.sequence <= excluded.sequence)
      SELECT true AS held FROM fence`,
  )
  return saved.length ? { kind: 'saved' } : FENCED
}

/** The same inside a transaction that holds the run's row. */
export async function writeFold(
  db: Db,
  run: { runId: string; tenantId: string; epoch: number },
  sequence: number,
  fold: Fold,
): Promise<void> {
  await rows(
    db,
    sql`INSERT INTO holdfast.run_folds (run_id, tenant_id, epoch, sequence, fold)
        VALUES (${run.runId}, ${run.tenantId}, ${run.epoch}, ${sequence}, ${JSON.stringify(fold)}::json)
        ON CONFLICT (run_id) DO UPDATE
          SET epoch = excluded.epoch, sequence = excluded.sequence, fold = excluded.fold, saved_at = clock_timestamp()`,
  )
}

/** What a run's log amounts to now: the saved fold and the tail behind it, of one snapshot or under its lock. */
export async function loadFold(
  db: Db | Store,
  runId: string,
): Promise<{ fold: Fold; sequence: number; tail: AgUiEvent[] }> {
  const saved = await row(
    db,
    sql<{ sequence: number; fold: Fold }>`
      SELECT sequence, fold FROM holdfast.run_folds WHERE run_id = ${runId}`,
  )
  const after = saved?.sequence ?? 0
  const found = await rows(
    db,
    sql<{ sequence: number; payload: AgUiEvent }>`
      SELECT sequence, payload FROM holdfast.run_events
      WHERE run_id = ${runId} AND sequence > ${after} ORDER BY sequence`,
  )
  const tail = found.map((event) => event.payload)
  return {
    fold: foldEvents(saved?.fold ?? emptyFold(), tail),
    sequence: found.at(-1)?.sequence ?? after,
    tail,
  }
}
