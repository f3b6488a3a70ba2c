import type { AgUiEvent, Message } from '@holdfast/protocol'
import type { DatabaseServer } from './database-server.ts'
import {
  type StaleWrite,
  type Stored,
  type StoredAttempt,
  type StoredEvent,
  type StoredMessage,
  type StoredRun,
  turnKey,
} from './history.ts'

const MS = (column: string) => `(extract(epoch FROM ${column}) * 1000)::float8`

/** Everything that the database holds, in the checker's words. */
export async function readStored({ admin }: DatabaseServer): Promise<Stored> {
  const runs = await admin<StoredRun>(`
    SELECT id AS "runId", conversation_id AS "conversationId", user_id AS "user", turn, agent, state, outcome,
      error_code AS "errorCode", execution_epoch AS epoch, last_sequence::int AS sequence,
      ${MS('created_at')} AS "createdAtMs", ${MS('started_at')} AS "startedAtMs",
      ${MS('finished_at')} AS "finishedAtMs" FROM holdfast.runs`)
  const events = await admin<{ runId: string; json: string } & Omit<StoredEvent, 'event'>>(`
    SELECT run_id AS "runId", sequence::int, epoch, payload::text AS json, ${MS('created_at')} AS "atMs"
    FROM holdfast.run_events ORDER BY run_id, sequence`)
  const messages = await admin<StoredMessage & { conversationId: string; message: Message }>(`
    SELECT conversation_id AS "conversationId", run_id AS "runId", status, message
    FROM holdfast.conversation_messages ORDER BY conversation_id, turn, index`)
  const attempts = await admin<StoredAttempt>(`
    SELECT run_id AS "runId", epoch, runner, reason, outcome, ${MS('started_at')} AS "startedAtMs",
      ${MS('ended_at')} AS "endedAtMs" FROM holdfast.run_attempts ORDER BY run_id, epoch`)
  const turns = await admin<{ user: string; turn: string; runId: string }>(`
    SELECT user_id AS "user", client_turn_id AS turn, run_id AS "runId" FROM holdfast.client_turns`)
  const outbox = await admin<{ runId: string; eventId: string }>(`
    SELECT run_id AS "runId", event_id AS "eventId" FROM holdfast.outbox`)
  const staleWrites = await admin<StaleWrite>(`
    SELECT run_id AS "runId", epoch, current_epoch AS "currentEpoch", runner, operation FROM holdfast.stale_writes`)
  const parsed = events.map((row) => ({ ...row, event: JSON.parse(row.json) as AgUiEvent }))
  return {
    runs: new Map(runs.map((run) => [run.runId, run])),
    logs: Map.groupBy(parsed, ({ runId }) => runId),
    messages: Map.groupBy(messages, ({ conversationId }) => conversationId),
    attempts: Map.groupBy(attempts, ({ runId }) => runId),
    turns: new Map(turns.map(({ user, turn, runId }) => [turnKey(user, turn), runId])),
    notifications: new Map(
      [...Map.groupBy(outbox, ({ runId }) => runId)].map(([runId, rows]) => [
        runId,
        rows.map(({ eventId }) => eventId),
      ]),
    ),
    staleWrites,
    notifies: await notifies(admin),
  }
}

/** Whether this Holdfast has a table of deliveries, and so something that makes them. */
export async function notifies(admin: DatabaseServer['admin']): Promise<boolean> {
  const [found] = await admin<{ there: boolean }>(
    `SELECT to_regclass('holdfast.deliveries') IS NOT NULL AS there`,
  )
  return found?.there === true
}
