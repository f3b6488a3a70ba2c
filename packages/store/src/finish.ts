import { type RunEnding, type RunState } from '@holdfast/protocol'
import { invariant } from '@holdfast/std'
import { sql } from 'kysely'
import { type ArtifactPointer, insertArtifacts } from './artifact.ts'
import { insertEvents } from './event-log.ts'
import { type Fenced, type Lease, withFence } from './lease.ts'
import { isReplaced } from './replacement.ts'
import { type Db, newId, row, rows, type Store } from './store.ts'

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

/** The one way in which any run ends, whoever ends it. */
export async function endRun(
  db: Db,
  run: EndableRun,
  ending: RunEnding,
  artifacts: readonly ArtifactPointer[] = [],
): Promise<Extract<Finished, { kind: 'finished' }>> {
  const sequence = run.lastSequence + ending.events.length
  const ended = await row(
    db,
    sql<{ state: RunState; finished_at: Date; usage: unknown }>`
      UPDATE holdfast.runs r
      SET state = t.to_state, outcome = ${ending.outcome}, error_code = ${ending.errorCode},
          last_sequence = ${sequence}, owner = NULL, lease_until = NULL, queue_until = NULL,
          finished_at = clock_timestamp()
      FROM holdfast.run_transitions t
      WHERE r.id = ${run.runId} AND r.state = ${run.from} AND r.last_sequence = ${run.lastSequence}
        AND t.from_state = r.state AND t.command = ${ending.command}
      RETURNING r.state, r.finished_at`,
  )
  invariant(ended, `a ${run.from} run that is locked can ${ending.command}`)
  await insertEvents(db, { ...run, base: run.lastSequence }, ending.events)
  await writeResult(db, run, ending)
  await rows(
    db,
    sql`UPDATE holdfast.run_attempts SET ended_at = clock_timestamp(), outcome = ${ended.state}
        WHERE run_id = ${run.runId} AND ended_at IS NULL`,
  )
  if (!run.hidden) {
    await writeMessages(db, run, ending)
    await insertArtifacts(db, run, artifacts)
    await writeNotification(db, run, ending, ended)
  }
  await rows(db, sql`DELETE FROM holdfast.run_folds WHERE run_id = ${run.runId}`)
  const nextRunId = await unparkNext(db, run.conversationId)
  return { kind: 'finished', state: ended.state, sequence, nextRunId }
}

async function writeResult(db: Db, run: EndableRun, ending: RunEnding) {
  await rows(
    db,
    sql`INSERT INTO holdfast.run_results (run_id, tenant_id, terminal, state, result, usage)
        VALUES (${run.runId}, ${run.tenantId}, ${json(ending.events.at(-1))}::json, ${json(ending.state)}::json,
                ${json(ending.result)}::json, ${json(ending.usage)}::json)`,
  )
}

async function writeMessages(db: Db, run: EndableRun, ending: RunEnding) {
  const texts = ending.messages.map(({ message }) => JSON.stringify(message))
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
  if (texts.length) {
    await rows(
      db,
      sql`INSERT INTO holdfast.conversation_messages
            (conversation_id, turn, index, tenant_id, run_id, message_id, role, status, message)
          SELECT ${run.conversationId}::uuid, ${run.turn}::int, brought.n + m.k - 1, ${run.tenantId}, ${run.runId}::uuid,
            -- A later turn may have brought the same id; what readers saw stays as it is.
            CASE WHEN EXISTS (SELECT FROM holdfast.conversation_messages x
                              WHERE x.conversation_id = ${run.conversationId}::uuid AND x.message_id = m.id)
              THEN m.id || ':' || ${run.runId} ELSE m.id END,
            m.role, m.status, m.message::json
          FROM unnest(${ending.messages.map(({ message }) => message.id)}::text[],
                      ${ending.messages.map(({ message }) => message.role)}::text[],
                      ${ending.messages.map(({ status }) => status)}::text[], ${texts}::text[])
            WITH ORDINALITY AS m (id, role, status, message, k)
          -- Behind what the turn brought along: its user message, results of earlier calls.
          CROSS JOIN (SELECT count(*) AS n FROM holdfast.conversation_messages
                      WHERE conversation_id = ${run.conversationId}::uuid AND turn = ${run.turn}::int) AS brought`,
    )
  }
  await rows(
    db,
    sql`UPDATE holdfast.conversations c
        SET updated_at = clock_timestamp(),
            bytes = CASE WHEN ${isReplaced(run.turn)} THEN bytes ELSE bytes + ${bytes} END,
            state = CASE WHEN ${isReplaced(run.turn)} THEN state
                         ELSE coalesce(${json(ending.state)}::json, state) END
        WHERE id = ${run.conversationId}`,
  )
}

async function writeNotification(
  db: Db,
  run: EndableRun,
  ending: RunEnding,
  ended: { state: RunState; finished_at: Date },
) {
  const terminal = ending.events.at(-1)
  const payload = {
    eventId: run.eventId,
    type: `run.${ended.state}`,
    runId: run.runId,
    conversationId: run.conversationId,
    state: ended.state,
    outcome: ending.outcome,
    finishedAt: ended.finished_at.toISOString(),
    ...(terminal?.type === 'RUN_ERROR'
      ? { error: { code: terminal.code, message: terminal.message } }
      : {}),
  }
  await rows(
    db,
    sql`INSERT INTO holdfast.outbox (event_id, run_id, tenant_id, type, payload, notify_url)
        SELECT ${run.eventId}, ${run.runId}, ${run.tenantId}, ${payload.type}, ${json(payload)}::json, notify_url
        FROM holdfast.run_inputs WHERE run_id = ${run.runId}`,
  )
}

/** Makes the conversation's next turn due, in the transaction that freed it. */
async function unparkNext(db: Db, conversationId: string): Promise<string | null> {
  const next = await row(
    db,
    sql<{ id: string }>`
      UPDATE holdfast.runs
      SET available_at = clock_timestamp(), queue_until = clock_timestamp() + max_queue_ms * interval '1 ms'
      WHERE id = (SELECT id FROM holdfast.runs
                  WHERE conversation_id = ${conversationId} AND state IN ('queued', 'running')
                  ORDER BY turn LIMIT 1)
        AND state = 'queued' AND available_at = 'infinity'
      RETURNING id`,
  )
  return next?.id ?? null
}

function json(value: unknown): string | null {
  return value === undefined ? null : JSON.stringify(value)
}
