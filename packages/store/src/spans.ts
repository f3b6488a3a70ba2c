import { sql } from 'kysely'
import { FENCED, type Fenced, holds, type Lease } from './lease.ts'
import { row, type Store } from './store.ts'

/** A part of an attempt as the timeline shows it. Times are how long ago, so that only the database's clock counts. */
export type SpanWrite = {
  readonly key: string
  readonly kind: string
  readonly parent: string | null
  readonly startedAgoMs: number
  /** `null`: it goes on. */
  readonly endedAgoMs: number | null
  readonly outcome: 'done' | 'failed' | 'cancelled' | null
}

/**
 * Writes spans of one attempt, or how they ended; no key twice. May be sent again. Guarantees: only under a live lease.
 * Locks only the run. Index: primary keys.
 */
export async function writeSpans(
  store: Store,
  lease: Lease,
  spans: readonly SpanWrite[],
): Promise<{ readonly kind: 'written' } | Fenced> {
  const written = await row(
    store,
    sql<{ held: boolean }>`
      WITH fence AS (
        SELECT r.id, r.tenant_id FROM holdfast.runs r WHERE ${holds(lease)} FOR NO KEY UPDATE),
      kept AS (
        INSERT INTO holdfast.run_spans AS p
          (run_id, epoch, span_key, tenant_id, kind, parent, started_at, ended_at, outcome)
        SELECT fence.id, ${lease.epoch}, s.key, fence.tenant_id, s.kind, s.parent,
          clock_timestamp() - s.started_ago * interval '1 ms', clock_timestamp() - s.ended_ago * interval '1 ms', s.outcome
        FROM fence, unnest(${spans.map((span) => span.key)}::text[], ${spans.map((span) => span.kind)}::text[],
                           ${spans.map((span) => span.parent)}::text[], ${spans.map((span) => span.startedAgoMs)}::float8[],
                           ${spans.map((span) => span.endedAgoMs)}::float8[], ${spans.map((span) => span.outcome)}::text[])
          AS s (key, kind, parent, started_ago, ended_ago, outcome)
        ON CONFLICT (run_id, epoch, span_key) DO UPDATE
          SET ended_at = excluded.ended_at, outcome = excluded.outcome WHERE p.ended_at IS NULL)
      SELECT true AS held FROM fence`,
  )
  return written ? { kind: 'written' } : FENCED
}
