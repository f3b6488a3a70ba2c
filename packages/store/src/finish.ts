import { type RunEnding, type RunState } from '@holdfast/protocol'
import { invariant } from '@holdfast/std'
import { sql } from 'kysely'
import { type ArtifactPointer, artifactsOf } from './artifact.ts'
import { type Fenced, type Lease, withFence } from './lease.ts'
import { isReplaced } from './replacement.ts'
import { type Db, newId, row, type Store } from './store.ts'

export type Finished =
  | {
      readonly kind: 'finished'
      readonly state: RunState
      readonly sequence: number
      /** The turn behind this one that became due, to be woken up. */
      readonly nextRunId: string | null
    }
  /** The log is not as long as the caller thinks: a flush of its own is undecided. Nothing was written. */
  | { readonly kind: 'sequence_mismatch'; readonly lastSequence: number }
  | Fenced

/**
 * Ends a run: terminal state, terminal event, messages, freed conversation and outbox row in one fenced
 * transaction (I10). `decide` is asked under the locks, so a cancel that came before is always seen.
 * Locks: conversation, run, then the next turn.
 */
export async function finishRun(
  store: Store,
  lease: Lease,
  lastSequence: number,
  decide: (found: {
    cancelRequested: boolean
    followed: boolean
  }) => RunEnding | Promise<RunEnding>,
  artifacts: readonly ArtifactPointer[] = [],
): Promise<Finished> {
  const eventId = newId(store)
  return await withFence(store, lease, async ({ db, run }) => {
    if (run.lastSequence !== lastSequence) {
      return { kind: 'sequence_mismatch', lastSequence: run.lastSequence } as const
    }
    const ending = await decide({
      cancelRequested: run.cancelRequestedAt !== null,
      followed: run.followed,
    })
    return await endRun(db, { ...run, ...lease, eventId, from: 'running' }, ending, artifacts)
  })
}

/** What `endRun` must know of the run; its conversation and its row are locked by the caller. */
export type EndableRun = {
  readonly runId: string
  readonly conversationId: string
  readonly tenantId: string
  readonly turn: number
  readonly epoch: number
  readonly lastSequence: number
  readonly hidden: boolean
  readonly from: 'running' | 'queued'
  readonly eventId: string
}

/**
 * The one way in which any run ends, whoever ends it, in one statement: the conversation was locked by an earlier one, so
 * this one's snapshot holds every turn that waits. What belongs to the end hangs on the row that the UPDATE gives.
 * Makes the conversation's next turn due. Locks: the run, the conversation, the next turn. Index: primary keys, and
 * runs_unfinished for the next turn.
 */
export async function endRun(
  db: Db,
  run: EndableRun,
  ending: RunEnding,
  artifacts: readonly ArtifactPointer[] = [],
): Promise<Extract<Finished, { kind: 'finished' }>> {
  const { runId, conversationId, tenantId } = run
  const sequence = run.lastSequence + ending.events.length
  const ended = await row(
    db,
    sql<{ state: RunState; next_id: string | null }>`
      WITH ended AS (
        UPDATE holdfast.runs r
        SET state = t.to_state, outcome = ${ending.outcome}, error_code = ${ending.errorCode},
            last_sequence = ${sequence}, owner = NULL, lease_until = NULL, queue_until = NULL,
            finished_at = clock_timestamp()
        FROM holdfast.run_transitions t
        WHERE r.id = ${runId} AND r.state = ${run.from} AND r.last_sequence = ${run.lastSequence}
          AND t.from_state = r.state AND t.command = ${ending.command}
        RETURNING r.state, r.finished_at),
      shown AS (SELECT * FROM ended WHERE NOT ${run.hidden}::boolean),
      event AS (
        INSERT INTO holdfast.run_events (run_id, sequence, epoch, tenant_id, type, payload)
        SELECT ${runId}::uuid, ${run.lastSequence}::bigint + e.k, ${run.epoch}::int, ${tenantId}, e.type, e.payload::json
        FROM ended, unnest(${ending.events.map((event) => event.type)}::text[],
                           ${ending.events.map((event) => JSON.stringify(event))}::text[])
          WITH ORDINALITY AS e (type, payload, k)),
      result AS (
        INSERT INTO holdfast.run_results (run_id, tenant_id, terminal, state, result, usage)
        SELECT ${runId}::uuid, ${tenantId}, ${json(ending.events.at(-1))}::json, ${json(ending.state)}::json,
          ${json(ending.result)}::json, ${json(ending.usage)}::json FROM ended),
      attempt AS (
        UPDATE holdfast.run_attempts a SET ended_at = clock_timestamp(), outcome = ended.state
        FROM ended WHERE a.run_id = ${runId} AND a.ended_at IS NULL),
      message AS (${messagesOf(run, ending)}),
      conversation AS (${conversationAfter(run, ending)}),
      artifact AS (${artifactsOf(run, artifacts)}),
      notification AS (
        INSERT INTO holdfast.outbox (event_id, run_id, tenant_id, type, payload, notify_url)
        SELECT ${run.eventId}::uuid, ${runId}::uuid, ${tenantId}, 'run.' || shown.state,
          ${notificationOf(run, ending)}, i.notify_url
        FROM shown, holdfast.run_inputs i WHERE i.run_id = ${runId}),
      fold AS (DELETE FROM holdfast.run_folds f USING ended WHERE f.run_id = ${runId}),
      next AS (
        UPDATE holdfast.runs n
        SET available_at = clock_timestamp(), queue_until = clock_timestamp() + n.max_queue_ms * interval '1 ms'
        FROM ended
        WHERE n.id = (SELECT u.id FROM holdfast.runs u
                      WHERE u.conversation_id = ${conversationId} AND u.state IN ('queued', 'running')
                        AND u.id <> ${runId}
                      ORDER BY u.turn LIMIT 1)
          AND n.state = 'queued' AND n.available_at = 'infinity'
        RETURNING n.id)
      SELECT ended.state, (SELECT id FROM next) AS next_id FROM ended`,
  )
  invariant(ended, `a ${run.from} run that is locked can ${ending.command}`)
  return { kind: 'finished', state: ended.state, sequence, nextRunId: ended.next_id }
}

/** Behind what the turn brought along: its user message, results of earlier calls. */
function messagesOf(
  { runId, conversationId, tenantId, turn }: EndableRun,
  { messages }: RunEnding,
) {
  return sql`
    INSERT INTO holdfast.conversation_messages
      (conversation_id, turn, index, tenant_id, run_id, message_id, role, status, message)
    SELECT ${conversationId}::uuid, ${turn}::int, brought.n + m.k - 1, ${tenantId}, ${runId}::uuid,
      -- A later turn may have brought the same id; what readers saw stays as it is.
      CASE WHEN EXISTS (SELECT FROM holdfast.conversation_messages x
                        WHERE x.conversation_id = ${conversationId}::uuid AND x.message_id = m.id)
        THEN m.id || ':' || ${runId} ELSE m.id END,
      m.role, m.status, m.message::json
    FROM shown, unnest(${messages.map(({ message }) => message.id)}::text[],
                ${messages.map(({ message }) => message.role)}::text[],
                ${messages.map(({ status }) => status)}::text[],
                ${messages.map(({ message }) => JSON.stringify(message))}::text[])
      WITH ORDINALITY AS m (id, role, status, message, k),
      (SELECT count(*) AS n FROM holdfast.conversation_messages
       WHERE conversation_id = ${conversationId}::uuid AND turn = ${turn}::int) AS brought`
}

function conversationAfter({ runId, conversationId, turn }: EndableRun, ending: RunEnding) {
  const texts = ending.messages.map(({ message }) => JSON.stringify(message))
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
  return sql`
    UPDATE holdfast.conversations c
    SET updated_at = clock_timestamp(),
        bytes = CASE WHEN ${isReplaced(turn)} THEN c.bytes ELSE c.bytes + ${bytes} END,
        state = CASE WHEN ${isReplaced(turn)} THEN c.state
                     ELSE coalesce(${json(ending.state)}::json, c.state) END,
        asked_by = CASE WHEN ${ending.asks} AND NOT ${isReplaced(turn)} THEN ${runId}::uuid ELSE c.asked_by END
    FROM shown WHERE c.id = ${conversationId}`
}

/** What an endpoint is told, with the time at which the database ended the run. */
function notificationOf({ runId, conversationId, eventId }: EndableRun, ending: RunEnding) {
  const terminal = ending.events.at(-1)
  const error =
    terminal?.type === 'RUN_ERROR' ? { code: terminal.code, message: terminal.message } : undefined
  return sql`json_strip_nulls(json_build_object('eventId', ${eventId}::text, 'type', 'run.' || shown.state,
    'runId', ${runId}::text, 'conversationId', ${conversationId}::text, 'state', shown.state,
    'outcome', ${ending.outcome}::text,
    'finishedAt', to_char(shown.finished_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
    'error', ${json(error)}::json))`
}

function json(value: unknown): string | null {
  return value === undefined ? null : JSON.stringify(value)
}
