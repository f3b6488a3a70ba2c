import { asError } from '@holdfast/std'
import { sql } from 'kysely'
import { cancelLocked } from './cancel.ts'
import { visibleTo } from './event-log.ts'
import { lockConversation } from './lease.ts'
import type { Principal } from './principal.ts'
import { inTransaction, row, rows, type Store } from './store.ts'

export type Deleted =
  /** `cancelled`: running runs that were marked; their owners have to be woken. */
  | { readonly kind: 'deleted'; readonly cancelled: readonly string[] }
  | { readonly kind: 'not_found' }
  | { readonly kind: 'conversation_busy'; readonly activeRunId: string }

/**
 * Hides a conversation at once, everywhere; with `cancel` also one whose runs have not ended: they are marked,
 * and the last finish writes neither messages nor notification. What is hidden is purged by housekeeping.
 * Locks: conversation, then runs by turn.
 */
export async function deleteConversation(
  store: Store,
  principal: Principal,
  conversationId: string,
  options: { readonly cancel: boolean },
): Promise<Deleted> {
  return await inTransaction(store, async (db) => {
    const found = await row(
      db,
      sql<{ id: string }>`
        SELECT id FROM holdfast.conversations r
        WHERE id = ${conversationId} AND deleted_at IS NULL AND ${visibleTo(principal)}`,
    )
    const conversation = found && (await lockConversation(db, conversationId))
    if (!conversation || conversation.deletedAt) return { kind: 'not_found' }
    const unfinished = await rows(
      db,
      sql<{ id: string }>`
        SELECT id FROM holdfast.runs
        WHERE conversation_id = ${conversationId} AND state IN ('queued', 'running') ORDER BY turn`,
    )
    const [lowest] = unfinished
    if (lowest && !options.cancel) return { kind: 'conversation_busy', activeRunId: lowest.id }
    await rows(
      db,
      sql`UPDATE holdfast.conversations SET deleted_at = clock_timestamp() WHERE id = ${conversationId}`,
    )
    const cancelled: string[] = []
    for (const { id } of unfinished.toReversed()) {
      const outcome = await cancelLocked(store, db, { deletedAt: new Date() }, id)
      if (outcome.kind === 'requested' && outcome.state === 'running') cancelled.push(id)
    }
    return { kind: 'deleted', cancelled }
  })
}

/** Conversations of which a purge picks those that it removes. */
const LOOKED_AT = 1000

/**
 * Removes what was deleted and has no unfinished run any more. The client turns stay, so that a repeat is
 * told that its run is gone. Files go first: whoever is stopped in between leaves rows that are found again, and no
 * file that nobody knows of. One conversation a transaction, and in no order, so that those which cannot be removed do
 * not stand in the way of the others. Index: conversations_deleted, runs_unfinished.
 * @returns why some could not be removed; they are looked at again
 */
export async function purgeDeleted(
  store: Store,
  limit: number,
  removeFiles: (run: { tenantId: string; runId: string }) => Promise<void>,
  signal: AbortSignal,
): Promise<Error[]> {
  const hidden = await rows(
    store,
    sql<{ id: string }>`
      SELECT id FROM (
        SELECT id FROM holdfast.conversations c WHERE deleted_at IS NOT NULL AND NOT EXISTS (
          SELECT FROM holdfast.runs r
          WHERE r.conversation_id = c.id AND r.state IN ('queued', 'running')) LIMIT ${LOOKED_AT}) hidden
      ORDER BY random() LIMIT ${limit}`,
  )
  const failed: Error[] = []
  for (const { id } of hidden) {
    if (signal.aborted) break
    try {
      await purge(store, id, removeFiles)
    } catch (error) {
      if (!signal.aborted) failed.push(asError(error))
    }
  }
  return failed
}

async function purge(
  store: Store,
  conversationId: string,
  removeFiles: (run: { tenantId: string; runId: string }) => Promise<void>,
): Promise<void> {
  const begun = await rows(
    store,
    sql<{ id: string; tenant_id: string }>`
      SELECT id, tenant_id FROM holdfast.runs
      WHERE conversation_id = ${conversationId} AND execution_epoch > 0`,
  )
  for (const run of begun) await removeFiles({ tenantId: run.tenant_id, runId: run.id })
  await inTransaction(store, async (db) => {
    await lockConversation(db, conversationId)
    const runs = await rows(
      db,
      sql<{ id: string }>`SELECT id FROM holdfast.runs WHERE conversation_id = ${conversationId}`,
    )
    const runIds = runs.map((run) => run.id)
    for (const table of OF_A_RUN) {
      await rows(
        db,
        sql`DELETE FROM ${sql.table(`holdfast.${table}`)} WHERE run_id = ANY (${runIds}::uuid[])`,
      )
    }
    for (const table of OF_A_CONVERSATION) {
      await rows(
        db,
        sql`DELETE FROM ${sql.table(`holdfast.${table}`)} WHERE conversation_id = ${conversationId}`,
      )
    }
    await rows(db, sql`DELETE FROM holdfast.conversations WHERE id = ${conversationId}`)
  })
}

/** What else of a conversation is gone before it is itself. */
const OF_A_CONVERSATION = ['conversation_messages', 'replacements', 'attachments', 'runs'] as const

const OF_A_RUN = [
  'run_events',
  'run_inputs',
  'run_results',
  'run_folds',
  'run_attempts',
  'run_checkpoints',
  'run_steps',
  'run_spans',
  'artifacts',
  'stale_writes',
  // Its deliveries go with it: nobody is told of what is not there.
  'outbox',
] as const
