import { type AgUiEvent, isTerminal, preludeEvents, type RunState } from '@holdfast/protocol'
import { sql } from 'kysely'
import { readTurns } from './attempt-input.ts'
import { visibleTo } from './event-log.ts'
import { loadFold } from './fold-record.ts'
import type { Principal } from './principal.ts'
import { inSnapshot, row, type Store } from './store.ts'

export type PreludeView = {
  readonly events: readonly AgUiEvent[]
  /** The sequence that the events stand for: the suffix behind it continues them. */
  readonly sequence: number
  /** The last event is the terminal one. */
  readonly ended: boolean
}

/**
 * What a reader gets who comes without a cursor: complete by itself, of one moment, at the cost of the text and
 * not of the log. `null`: unknown, foreign or deleted.
 */
export async function readPrelude(
  store: Store,
  principal: Principal,
  runId: string,
): Promise<PreludeView | null> {
  return await inSnapshot(store, async (db) => {
    const run = await row(
      db,
      sql<{
        conversation_id: string
        turn: number
        state: RunState
        last_sequence: number
        thread_id: string
        wire_run_id: string
        input_state: unknown
        terminal: AgUiEvent | null
        final_state: unknown
        conversation_state: unknown
      }>`
        SELECT r.conversation_id, r.turn, r.state, r.last_sequence, i.thread_id, i.wire_run_id,
          i.state AS input_state, x.terminal, x.state AS final_state, c.state AS conversation_state
        FROM holdfast.runs r
        JOIN holdfast.conversations c ON c.id = r.conversation_id AND c.deleted_at IS NULL
        JOIN holdfast.run_inputs i ON i.run_id = r.id
        LEFT JOIN holdfast.run_results x ON x.run_id = r.id
        WHERE r.id = ${runId} AND ${visibleTo(principal)}`,
    )
    if (!run) return null
    const stored = await readTurns(db, run.conversation_id, run.turn)
    const history = stored.map(({ message }) => message)
    const common = { threadId: run.thread_id, runId: run.wire_run_id }
    if (isTerminal(run.state)) {
      const events = preludeEvents({
        ...common,
        messages: history,
        state: run.final_state ?? undefined,
        open: [],
        terminal: run.terminal,
      })
      return { events, sequence: run.last_sequence, ended: true }
    }
    const { fold, sequence } = await loadFold(db, runId)
    const known = new Set(history.map((message) => message.id))
    const events = preludeEvents({
      ...common,
      messages: [...history, ...fold.messages.filter((message) => !known.has(message.id))],
      state: fold.state ?? run.input_state ?? run.conversation_state ?? undefined,
      open: fold.open,
      terminal: null,
    })
    return { events, sequence, ended: false }
  })
}
