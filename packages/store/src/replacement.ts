import { type RawBuilder, sql } from 'kysely'
import { type Db, row, rows } from './store.ts'

/**
 * Whether a turn's messages `m` belong to what `turn` sees: turns up to its own, without those that one of them
 * replaced. A turn that was replaced itself goes on seeing what it saw. Index: replacements' primary key.
 */
export function shownTo(turn: number | RawBuilder<number>): RawBuilder<boolean> {
  return sql<boolean>`(m.turn <= ${turn} AND NOT EXISTS (
    SELECT FROM holdfast.replacements p WHERE p.conversation_id = m.conversation_id
      AND p.by_turn <= ${turn} AND p.from_turn <= m.turn AND m.turn < p.by_turn))`
}

/** Whether a later turn of the conversation `c` replaced this one, which may still be running. */
export function isReplaced(turn: number): RawBuilder<boolean> {
  return sql<boolean>`EXISTS (
    SELECT FROM holdfast.replacements p
    WHERE p.conversation_id = c.id AND p.from_turn <= ${turn} AND ${turn} < p.by_turn)`
}

/** The turn of a run that is to be replaced, in whatever state it is; `null`: not of this conversation. */
export async function findReplaced(
  db: Db,
  conversationId: string,
  runId: string,
): Promise<number | null> {
  const run = await row(
    db,
    sql<{ turn: number }>`
      SELECT turn FROM holdfast.runs WHERE id = ${runId} AND conversation_id = ${conversationId}`,
  )
  return run?.turn ?? null
}

/**
 * Hides the turns from `fromTurn` on from the turn that is about to be taken, and sets the conversation's size and state
 * back to what the turns before them left. Locks: the conversation, which the caller holds.
 */
export async function hideTurns(
  db: Db,
  conversation: { id: string; tenantId: string },
  fromTurn: number,
): Promise<void> {
  await rows(
    db,
    sql`INSERT INTO holdfast.replacements (conversation_id, by_turn, from_turn, tenant_id)
        SELECT id, next_turn, ${fromTurn}, tenant_id FROM holdfast.conversations WHERE id = ${conversation.id}`,
  )
  await rows(
    db,
    sql`UPDATE holdfast.conversations c
        SET bytes = coalesce((
              SELECT sum(octet_length(m.message::text)) FROM holdfast.conversation_messages m
              WHERE m.conversation_id = c.id AND ${shownTo(LAST_TURN)}), 0),
            state = (
              SELECT x.state FROM holdfast.runs m JOIN holdfast.run_results x ON x.run_id = m.id
              WHERE m.conversation_id = c.id AND x.state IS NOT NULL AND ${shownTo(LAST_TURN)}
              ORDER BY m.turn DESC LIMIT 1)
        WHERE c.id = ${conversation.id}`,
  )
}

/** Behind every turn: what the conversation shows as a whole. */
export const LAST_TURN = 2 ** 31 - 1
