import type { AgUiEvent, Fold } from '@holdfast/protocol'
import { invariant } from '@holdfast/std'
import { sql } from 'kysely'
import { insertEvents } from './event-log.ts'
import { writeFold } from './fold-record.ts'
import { type Fenced, type Lease, withFence } from './lease.ts'
import { row, rows, type Store } from './store.ts'

export type Released =
  | { readonly kind: 'released'; readonly sequence: number }
  /** A cancel came first and wins: the run has to be ended instead. Nothing was written. */
  | { readonly kind: 'cancel_pending' }
  | { readonly kind: 'sequence_mismatch'; readonly lastSequence: number }
  | Fenced

/**
 * Gives a running run back to the queue: `hand_back` (a drain: due at once, costs no attempt) or `retry`
 * (a failure before the first output: due after `delayMs`). In one fenced transaction it closes what is open
 * and saves the fold, so a queued run never has anything open. Locks: conversation, run.
 */
export async function releaseRun(
  store: Store,
  lease: Lease,
  lastSequence: number,
  release: {
    readonly command: 'hand_back' | 'retry'
    readonly delayMs: number
    readonly closers: readonly AgUiEvent[]
    /** The fold with the closers applied. */
    readonly fold: Fold
  },
): Promise<Released> {
  return await withFence(store, lease, async ({ db, run }): Promise<Released> => {
    if (run.cancelRequestedAt) return { kind: 'cancel_pending' }
    if (run.lastSequence !== lastSequence) {
      return { kind: 'sequence_mismatch', lastSequence: run.lastSequence }
    }
    const sequence = lastSequence + release.closers.length
    const handedBack = release.command === 'hand_back'
    const queued = await row(
      db,
      sql<{ id: string }>`
        UPDATE holdfast.runs r
        SET state = t.to_state, owner = NULL, lease_until = NULL, last_sequence = ${sequence},
            attempts_used = attempts_used - ${handedBack ? 1 : 0},
            available_at = clock_timestamp() + ${release.delayMs} * interval '1 ms',
            queue_until = deadline_at, next_reason = ${handedBack ? 'handback' : 'retry'}
        FROM holdfast.run_transitions t
        WHERE r.id = ${lease.runId} AND t.from_state = r.state AND t.command = ${release.command}
        RETURNING r.id`,
    )
    invariant(queued, 'a running run that is locked can be released')
    await insertEvents(db, { ...lease, base: lastSequence }, release.closers)
    await writeFold(db, lease, sequence, release.fold)
    await rows(
      db,
      sql`UPDATE holdfast.run_attempts
          SET ended_at = clock_timestamp(), outcome = ${handedBack ? 'handed_back' : 'retried'}
          WHERE run_id = ${lease.runId} AND epoch = ${lease.epoch} AND ended_at IS NULL`,
    )
    return { kind: 'released', sequence }
  })
}
