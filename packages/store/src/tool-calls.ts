import type { TimelineView } from '@holdfast/protocol'
import { sql } from 'kysely'
import { type Db, rows } from './store.ts'

/** `effect`: without an outcome it is something done outside that nobody knows the result of. */
export type OpenSpan = TimelineView['spans'][number] & { readonly effect: boolean }

const EVENTS_MAX = 6000

/**
 * The tool calls that an agent only told of, from its events, as parts of the timeline. Those of agents without
 * outside effects are not in doubt when they are cut. Index: primary key of run_events.
 */
export async function readToolCalls(db: Db, runId: string): Promise<OpenSpan[]> {
  const events = await rows(
    db,
    sql<{
      type: 'TOOL_CALL_START' | 'TOOL_CALL_END' | 'TOOL_CALL_RESULT'
      epoch: number
      created_at: Date
      call_id: string
      name: string | null
      content: string | null
      effect: boolean
      succeeded: boolean
    }>`
      SELECT e.type, e.epoch, e.created_at, e.payload ->> 'toolCallId' AS call_id,
        e.payload ->> 'toolCallName' AS name, left(e.payload ->> 'content', 20) AS content,
        i.effects <> 'none' AS effect, r.state = 'succeeded' AND r.execution_epoch = e.epoch AS succeeded
      FROM holdfast.run_events e
      JOIN holdfast.run_inputs i ON i.run_id = e.run_id JOIN holdfast.runs r ON r.id = e.run_id
      WHERE e.run_id = ${runId} AND e.type IN ('TOOL_CALL_START', 'TOOL_CALL_END', 'TOOL_CALL_RESULT')
      ORDER BY e.sequence LIMIT ${EVENTS_MAX}`,
  )
  const calls = new Map<string, OpenSpan>()
  for (const event of events) {
    const at = event.created_at.toISOString()
    // A result that another attempt wrote while it ended the run says nothing about the call.
    const id = `${event.epoch} ${event.call_id}`
    const call = calls.get(id)
    if (event.type === 'TOOL_CALL_START') {
      const key = `${event.name ?? 'tool'} ${event.call_id}`
      const [kind, epoch, effect] = ['tool_call', event.epoch, event.effect]
      calls.set(id, { key, kind, parent: null, epoch, start: at, end: null, outcome: null, effect })
    } else if (call && event.type === 'TOOL_CALL_RESULT') {
      const interrupted = event.content === 'interrupted'
      calls.set(id, { ...call, end: at, outcome: interrupted ? 'cancelled' : 'done' })
    } else if (call && event.succeeded) {
      // The page's own tools get their results in a later turn.
      calls.set(id, { ...call, end: at, outcome: 'done' })
    }
  }
  return [...calls.values()]
}
