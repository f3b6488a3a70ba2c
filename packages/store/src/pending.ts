import {
  type AgUiEvent,
  type Interrupt,
  type Message,
  type Pending,
  unansweredToolCalls,
} from '@holdfast/protocol'
import { sql } from 'kysely'
import { shownTo } from './replacement.ts'
import { type Db, row, rows } from './store.ts'

/** What a run left to be answered, and whose it is. */
export type Asked = {
  readonly runId: string
  readonly agent: string
  readonly pending: Pending
  /** The database's clock, which says what has expired; milliseconds since 1970. */
  readonly atMs: number
}

/** Reads what the run asked that its conversation names as the one to be answered. Index: primary keys. */
export async function readAsked(
  db: Db,
  conversationId: string,
  askedBy: string | null,
): Promise<Asked | null> {
  if (askedBy === null) return null
  const asked = await row(
    db,
    sql<{ agent: string; turn: number; terminal: AgUiEvent; at_ms: number }>`
      SELECT r.agent, r.turn, x.terminal, extract(epoch FROM clock_timestamp()) * 1000 AS at_ms
      FROM holdfast.runs r JOIN holdfast.run_results x ON x.run_id = r.id WHERE r.id = ${askedBy}`,
  )
  if (!asked) return null
  const calls = await readUnanswered(db, conversationId, asked.turn)
  return {
    runId: askedBy,
    agent: asked.agent,
    pending: { interrupts: interruptsOf(asked.terminal), calls },
    atMs: Number(asked.at_ms),
  }
}

/** A run that only waits for the front end's tools has none. */
function interruptsOf(terminal: AgUiEvent): readonly Interrupt[] {
  if (terminal.type !== 'RUN_FINISHED') return []
  return terminal.outcome?.type === 'interrupt' ? terminal.outcome.interrupts : []
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
