import { type Lease } from './lease.ts'
import { prepared, type Store } from './store.ts'

/** Consecutive events of one run, already serialised, to be put behind `base`. */
export type Append = {
  readonly lease: Lease
  /** The run's last sequence as this runner knows it: compared, so that a lost reply is decidable. */
  readonly base: number
  readonly events: readonly { readonly type: string; readonly json: string }[]
}

export type Appended = {
  readonly runId: string
  readonly epoch: number
  readonly cancelRequested: boolean
}

// The sequence allocator is the fence: no live lease under this epoch, no row, no sequence, nothing to insert.
// A series counts as a thousand rows to a planner that keeps its plan, an array as ten. And of a quiet database it knows
// that hardly anything runs: with ten it would compare each running run with each of the batch.
const APPEND = `
  WITH batch AS (
    SELECT ($1::uuid[])[k] AS id, ($2::int[])[k] AS epoch, ($3::bigint[])[k] AS base, ($4::int[])[k] AS n
    FROM generate_series(1, cardinality($1::uuid[])) AS k),
  fence AS (
    UPDATE holdfast.runs r SET last_sequence = batch.base + batch.n
    FROM batch
    WHERE r.id = batch.id AND r.execution_epoch = batch.epoch AND r.last_sequence = batch.base
      AND r.state = 'running' AND r.lease_until > clock_timestamp()
    RETURNING r.id, r.tenant_id, batch.epoch, batch.base, r.cancel_requested_at),
  inserted AS (
    INSERT INTO holdfast.run_events (run_id, sequence, epoch, tenant_id, type, payload)
    SELECT fence.id, fence.base + e.k, fence.epoch, fence.tenant_id, e.type, e.payload::json
    FROM unnest($5::uuid[], $6::int[], $7::int[], $8::text[], $9::text[]) AS e (run_id, epoch, k, type, payload)
    JOIN fence ON fence.id = e.run_id AND fence.epoch = e.epoch)
  SELECT id AS run_id, epoch, cancel_requested_at IS NOT NULL AS cancel_requested FROM fence`

/**
 * Appends events of many runs in one statement. A run that is missing in the result was not written at
 * all: fenced off, or its log is longer than `base` (to be decided by `readOwnership`, never repeated blindly).
 * Two attempts of one run may stand in one batch, when a process takes over from itself: the epoch tells them apart.
 * Guarantees: sequences base+1 … base+n, visible in that order; all of a run or nothing.
 * Locks: the run rows, until the statement commits. Index: primary key of runs.
 */
export async function appendEvents(store: Store, appends: readonly Append[]): Promise<Appended[]> {
  const events = appends.flatMap(({ lease, events }) =>
    events.map((event, k) => ({ runId: lease.runId, epoch: lease.epoch, k: k + 1, ...event })),
  )
  const rows = await prepared<{ run_id: string; epoch: number; cancel_requested: boolean }>(
    store,
    'holdfast_append',
    APPEND,
    [
      appends.map(({ lease }) => lease.runId),
      appends.map(({ lease }) => lease.epoch),
      appends.map(({ base }) => base),
      appends.map((append) => append.events.length),
      events.map((event) => event.runId),
      events.map((event) => event.epoch),
      events.map((event) => event.k),
      events.map((event) => event.type),
      events.map((event) => event.json),
    ],
  )
  return rows.map((row) => ({
    runId: row.run_id,
    epoch: row.epoch,
    cancelRequested: row.cancel_requested,
  }))
}
