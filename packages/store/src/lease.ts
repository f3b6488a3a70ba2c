import { invariant } from '@holdfast/std'
import { type RawBuilder, sql } from 'kysely'
import { type Db, inTransaction, row, type Store } from './store.ts'

const minted: unique symbol = Symbol('lease')

/**
 * The right of one attempt to write for its run. It comes from a claim alone and is never made up:
 * the symbol is not exported. The database decides at each write whether it still holds.
 */
export type Lease = {
  readonly [minted]: true
  readonly runId: string
  readonly conversationId: string
  readonly tenantId: string
  readonly epoch: number
  /** The boot id of the runner that claimed. */
  readonly owner: string
}

/** Only the claim statements call this. */
export function mintLease(fields: Omit<Lease, typeof minted>): Lease {
  return { ...fields, [minted]: true }
}

const fenced: unique symbol = Symbol('fenced transaction')

/** A transaction in which the run's row is locked under a live lease; all of a run's writes take one. */
export type FencedTx = {
  readonly [fenced]: true
  readonly db: Db
  readonly lease: Lease
  /** The run's row as the fence found it, locked until the transaction ends. */
  readonly run: FencedRun
}

export type FencedRun = {
  readonly state: 'running'
  readonly turn: number
  readonly lastSequence: number
  readonly cancelRequestedAt: Date | null
  readonly userId: string
  /** Another turn waits behind this one. */
  readonly followed: boolean
  /** The conversation was deleted: state and terminal event may be written, nothing else. */
  readonly hidden: boolean
}

/** The fence refused: another epoch, not running, or the lease has passed. */
export const FENCED = { kind: 'fenced' } as const
export type Fenced = typeof FENCED

/**
 * I1's condition, in one place. `clock_timestamp()`, not `now()`: the statement may be late in its transaction. Behind
 * somebody who only locks the row it may have been judged up to a lock limit earlier; nobody can have taken over meanwhile.
 */
export function holds(lease: Pick<Lease, 'runId' | 'epoch'>, table = 'r'): RawBuilder<boolean> {
  const run = sql.raw(table)
  return sql<boolean>`${run}.id = ${lease.runId} AND ${run}.execution_epoch = ${lease.epoch}
    AND ${run}.state = 'running' AND ${run}.lease_until > clock_timestamp()`
}

/**
 * Runs `body` in a transaction that holds the run's row under the lease, conversation first.
 * Guarantees: what `body` writes commits only if the lease held, and nobody took the run over meanwhile,
 * because a takeover must update the locked row. Locks: conversation, then run. Index: primary keys.
 * @returns `FENCED` without calling `body` when the lease does not hold
 */
export async function withFence<T>(
  store: Store,
  lease: Lease,
  body: (tx: FencedTx) => Promise<T>,
): Promise<T | Fenced> {
  return await inTransaction(store, async (db) => {
    const conversation = await lockConversation(db, lease.conversationId)
    invariant(conversation, 'a run belongs to a conversation')
    const run = await row(
      db,
      sql<{
        turn: number
        last_sequence: number
        cancel_requested_at: Date | null
        user_id: string
        followed: boolean
      }>`
        SELECT turn, last_sequence, cancel_requested_at, user_id, EXISTS (
            SELECT FROM holdfast.runs n WHERE n.conversation_id = r.conversation_id
              AND n.state IN ('queued', 'running') AND n.turn > r.turn) AS followed
        FROM holdfast.runs r
        WHERE ${holds(lease)} FOR NO KEY UPDATE`,
    )
    if (!run) return FENCED
    return await body({
      [fenced]: true,
      db,
      lease,
      run: {
        state: 'running',
        turn: run.turn,
        lastSequence: run.last_sequence,
        cancelRequestedAt: run.cancel_requested_at,
        userId: run.user_id,
        followed: run.followed,
        hidden: conversation.deletedAt !== null,
      },
    })
  })
}

/**
 * First lock of everything that starts, ends or releases a run: serialises a conversation's turns.
 * What is looked up afterwards must be a new statement, since one that waited sees its old snapshot.
 */
export async function lockConversation(
  db: Db,
  conversationId: string,
): Promise<{ deletedAt: Date | null; askedBy: string | null } | null> {
  const found = await row(
    db,
    sql<{ deleted_at: Date | null; asked_by: string | null }>`
      SELECT deleted_at, asked_by FROM holdfast.conversations WHERE id = ${conversationId} FOR NO KEY UPDATE`,
  )
  return found && { deletedAt: found.deleted_at, askedBy: found.asked_by }
}
