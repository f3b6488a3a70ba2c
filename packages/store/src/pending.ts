import {
  type AgUiEvent,
  type Interrupt,
  type Message,
  type Pending,
  unansweredToolCalls,
} from '@holdfast/protocol'
import { sql } from 'kysely'
import { LAST_TURN, shownTo } from './replacement.ts'
import { type Db, row, rows } from './store.ts'

/** What the turn that ended last left to be answered, and whose it is. */
export type LastTurn = {
  readonly runId: string
  readonly agent: string
  readonly pending: Pending
  /** The database's clock, which says what has expired; milliseconds since 1970. */
  readonly atMs: number
}

const NOTHING: Pending = { interrupts: [], calls: [] }

/**
 * The turn that ended last, if all have ended. Only it can have something pending: a turn that enters settles what it
 * finds, but one that was stopped in the queue found nothing, because the turn before it had not asked yet. What was
 * replaced asks nobody. Index: runs (conversation_id, turn), all turns of the conversation.
 */
export async function readLastTurn(db: Db, conversationId: string): Promise<LastTurn | null> {
  const last = await row(
    db,
    sql<{ id: string; agent: string; turn: number; terminal: AgUiEvent | null; at_ms: number }>`
      SELECT m.id, m.agent, m.turn, CASE WHEN ${shownTo(LAST_TURN)} THEN x.terminal END AS terminal,
        extract(epoch FROM clock_timestamp()) * 1000 AS at_ms
      FROM holdfast.runs m LEFT JOIN holdfast.run_results x ON x.run_id = m.id
      WHERE m.conversation_id = ${conversationId}
      ORDER BY coalesce(m.finished_at, 'infinity') DESC, m.turn DESC LIMIT 1`,
  )
  if (!last) return null
  const asked = askedBy(last.terminal)
  return {
    runId: last.id,
    agent: last.agent,
    pending: asked
      ? { interrupts: asked, calls: await readUnanswered(db, conversationId, last.turn) }
      : NOTHING,
    atMs: Number(last.at_ms),
  }
}

/** The interrupts of a terminal event; `null`: the run waits for nobody, not even for the front end's tools. */
function askedBy(terminal: AgUiEvent | null): readonly Interrupt[] | null {
  if (terminal?.type !== 'RUN_FINISHED') return null
  const { outcome } = terminal
  if (outcome?.type === 'interrupt') return outcome.interrupts
  return outcome?.type === 'success' && outcome.pendingToolCallIds?.length ? [] : null
}

async function readUnanswered(db: Db, conversationId: string, turn: number) {
  const found = await rows(
    db,
    sql<{ message: Message }>`
      SELECT m.message FROM holdfast.conversation_messages m
      WHERE m.conversation_id = ${conversationId} AND m.role IN ('assistant', 'tool')
        AND ${shownTo(turn)} ORDER BY m.turn, m.index`,
  )
  return unansweredToolCalls({ messages: found.map(({ message }) => message) })
}
