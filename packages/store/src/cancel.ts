import { isTerminal, type RunState } from '@holdfast/protocol'
import { sql } from 'kysely'
import { endQueuedRun } from './end-queued.ts'
import { visibleTo } from './event-log.ts'
import { lockConversation } from './lease.ts'
import type { Principal } from './principal.ts'
import { type Db, inTransaction, row, rows, type Store } from './store.ts'

export type Cancelled =
  | {
      /** `requested`: it was unfinished; its owner, the sweep, or this very call ends it. `ended`: it was over before. */
      readonly kind: 'requested' | 'ended'
      readonly runId: string
      readonly state: RunState
      readonly cancelRequestedAt: string | null
      /** A turn that became due because this one ended here. */
      readonly nextRunId: string | null
    }
  | { readonly kind: 'not_found' }

type Found = {
  id: string
  conversation_id: string
  state: RunState
  cancel_requested_at: Date | null
}

/**
 * Stops a run, in whatever state it is. Durable: the mark is set first; a queued run ends in the same
 * transaction, a running one by its owner, or by the sweep when the owner is gone. Repeating it changes nothing.
 * Locks: conversation, run.
 */
export async function cancelRun(
  store: Store,
  principal: Principal,
  runId: string,
): Promise<Cancelled> {
  return await inTransaction(store, async (db) => {
    const run = await row(
      db,
      sql<Found>`
        SELECT r.id, r.conversation_id, r.state, r.cancel_requested_at FROM holdfast.runs r
        JOIN holdfast.conversations c ON c.id = r.conversation_id AND c.deleted_at IS NULL
        WHERE r.id = ${runId} AND ${visibleTo(principal)}`,
    )
    if (!run) return { kind: 'not_found' }
    if (isTerminal(run.state)) return ended(run)
    const conversation = await lockConversation(db, run.conversation_id)
    if (!conversation || conversation.deletedAt) return { kind: 'not_found' }
    return await cancelLocked(store, db, conversation, runId)
  })
}

/** Stops the run of a client turn, or else the lowest unfinished run of a thread. */
export async function cancelThread(
  store: Store,
  principal: Principal,
  threadId: string,
  wireRunId?: string,
): Promise<Cancelled> {
  const run = await row(
    store,
    sql<{ id: string }>`
      SELECT r.id FROM holdfast.conversations c JOIN holdfast.runs r ON r.conversation_id = c.id
      WHERE c.tenant_id = ${principal.tenantId} AND c.user_id = ${principal.userId}
        AND c.external_id = ${threadId} AND c.deleted_at IS NULL
        AND ${
          wireRunId === undefined
            ? sql`true`
            : sql`(r.id::text = ${wireRunId} OR EXISTS (
            SELECT FROM holdfast.client_turns t WHERE t.tenant_id = r.tenant_id AND t.user_id = r.user_id
              AND t.client_turn_id = ${wireRunId} AND t.run_id = r.id))`
        }
      ORDER BY (r.state IN ('queued', 'running')) DESC,
        CASE WHEN r.state IN ('queued', 'running') THEN r.turn ELSE -r.turn END LIMIT 1`,
  )
  return run ? await cancelRun(store, principal, run.id) : { kind: 'not_found' }
}

/** Marks one unfinished run of a locked conversation, and ends it at once if nobody holds it. */
export async function cancelLocked(
  store: Store,
  db: Db,
  conversation: { deletedAt: Date | null },
  runId: string,
): Promise<Cancelled> {
  await rows(
    db,
    sql`UPDATE holdfast.runs SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp())
        WHERE id = ${runId} AND state IN ('queued', 'running')`,
  )
  const finished = await endQueuedRun(store, db, conversation, runId, { kind: 'cancel' })
  const run = await row(
    db,
    sql<Found>`
      SELECT id, conversation_id, state, cancel_requested_at FROM holdfast.runs WHERE id = ${runId}`,
  )
  if (!run) return { kind: 'not_found' }
  const kind = isTerminal(run.state) && !finished ? 'ended' : 'requested'
  return { ...ended(run), kind, nextRunId: finished?.nextRunId ?? null }
}

function ended(run: Found) {
  return {
    kind: 'ended' as const,
    runId: run.id,
    state: run.state,
    cancelRequestedAt: run.cancel_requested_at?.toISOString() ?? null,
    nextRunId: null,
  }
}
