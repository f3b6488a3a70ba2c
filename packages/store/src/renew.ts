import { sql } from 'kysely'
import type { Lease } from './lease.ts'
import { rows, type Store } from './store.ts'

type Held = Pick<Lease, 'runId' | 'epoch'>

export type Renewal =
  | { readonly runId: string; readonly kind: 'renewed'; readonly cancelRequested: boolean }
  /** Still ours, but its row was locked by somebody at this moment: ask again soon. */
  | { readonly runId: string; readonly kind: 'busy' }
  /** The attempt itself has ended the run or given it back: there is nothing to renew, and nothing was lost. */
  | { readonly runId: string; readonly kind: 'over' }
  | { readonly runId: string; readonly kind: 'lost'; readonly currentEpoch: number | null }

/**
 * Renews all leases of a runner in one statement and says of each what became of it.
 * Guarantees: a lease that has passed is never renewed. Locks: the rows it can get, SKIP LOCKED, so it never
 * waits for an append and cannot deadlock with one; what it did not get is re-read before it is called lost.
 */
export async function renewLeases(
  store: Store,
  held: readonly Held[],
  leaseMs: number,
): Promise<Renewal[]> {
  if (held.length === 0) return []
  const ids = held.map((lease) => lease.runId)
  const epochs = held.map((lease) => lease.epoch)
  const renewed = await rows(
    store,
    sql<{ id: string; cancel_requested: boolean }>`
      WITH mine AS (
        -- A series and not an array, see appendEvents.
        SELECT r.id FROM (
          SELECT (${ids}::uuid[])[k] AS id, (${epochs}::int[])[k] AS epoch
          FROM generate_series(1, ${ids.length}::int) AS k) AS h
        JOIN holdfast.runs r ON r.id = h.id AND r.execution_epoch = h.epoch
        WHERE r.state = 'running' AND r.lease_until > clock_timestamp()
        FOR NO KEY UPDATE OF r SKIP LOCKED)
      UPDATE holdfast.runs r SET lease_until = clock_timestamp() + ${leaseMs} * interval '1 ms'
      FROM mine WHERE r.id = mine.id AND r.lease_until > clock_timestamp()
      RETURNING r.id, r.cancel_requested_at IS NOT NULL AS cancel_requested`,
  )
  const answers = new Map<string, Renewal>(
    renewed.map((run) => [
      run.id,
      { runId: run.id, kind: 'renewed', cancelRequested: run.cancel_requested },
    ]),
  )
  const missing = held.filter((lease) => !answers.has(lease.runId))
  for (const owned of await readOwnership(store, missing)) answers.set(owned.runId, refused(owned))
  return held.map(({ runId }) => answers.get(runId) ?? { runId, kind: 'lost', currentEpoch: null })
}

function refused({ runId, held, outcome, currentEpoch }: Ownership): Renewal {
  if (held) return { runId, kind: 'busy' }
  if (outcome !== null && outcome !== 'lost') return { runId, kind: 'over' }
  return { runId, kind: 'lost', currentEpoch }
}

export type Ownership = {
  readonly runId: string
  /** Of the lease that was asked for. */
  readonly epoch: number
  readonly held: boolean
  readonly currentEpoch: number
  readonly state: string
  readonly lastSequence: number
  /** The log's length as the asked attempt left it: all that came before the next one was claimed. */
  readonly ownSequence: number
  /** How the asked attempt ended; null: it is open. */
  readonly outcome: string | null
  readonly cancelRequested: boolean
  /** How long ago the lease passed, by the database's clock; 0 while it lives. */
  readonly lateMs: number
}

/**
 * What the database knows of these leases now: decides what became of a write whose reply was lost. Takes no locks.
 * Index: primary keys of runs and run_attempts.
 */
export async function readOwnership(store: Store, held: readonly Held[]): Promise<Ownership[]> {
  if (held.length === 0) return []
  const ids = held.map((lease) => lease.runId)
  const epochs = held.map((lease) => lease.epoch)
  const found = await rows(
    store,
    sql<{
      id: string
      epoch: number
      held: boolean
      execution_epoch: number
      state: string
      last_sequence: number
      own_sequence: number
      outcome: string | null
      cancel_requested: boolean
      late_ms: number
    }>`
      SELECT r.id, h.epoch, r.execution_epoch = h.epoch AND r.state = 'running' AND r.lease_until > clock_timestamp() AS held,
        r.execution_epoch, r.state, r.last_sequence, r.cancel_requested_at IS NOT NULL AS cancel_requested,
        coalesce((SELECT n.base_sequence FROM holdfast.run_attempts n WHERE n.run_id = h.id AND n.epoch > h.epoch
                  ORDER BY n.epoch LIMIT 1), r.last_sequence) AS own_sequence, a.outcome,
        greatest(0, coalesce(extract(epoch FROM clock_timestamp() - r.lease_until) * 1000, 0)) AS late_ms
      FROM unnest(${ids}::uuid[], ${epochs}::int[]) AS h (id, epoch) JOIN holdfast.runs r ON r.id = h.id
      LEFT JOIN holdfast.run_attempts a ON a.run_id = h.id AND a.epoch = h.epoch`,
  )
  return found.map((run) => ({
    runId: run.id,
    epoch: run.epoch,
    held: run.held === true,
    currentEpoch: run.execution_epoch,
    state: run.state,
    lastSequence: run.last_sequence,
    ownSequence: run.own_sequence,
    outcome: run.outcome,
    cancelRequested: run.cancel_requested,
    lateMs: Math.round(Number(run.late_ms)),
  }))
}
