import { type EndCause, endingOf, type UnansweredCall } from '@holdfast/protocol'
import { asError } from '@holdfast/std'
import { sql } from 'kysely'
import { endRun, type Finished } from './finish.ts'
import { loadFold } from './fold-record.ts'
import { lockConversation } from './lease.ts'
import { type Db, inTransaction, newId, row, rows, type Store } from './store.ts'

type QueuedRun = {
  id: string
  tenant_id: string
  conversation_id: string
  turn: number
  execution_epoch: number
  last_sequence: number
  thread_id: string
  wire_run_id: string
  tools: { name: string }[] | null
  open_calls: UnansweredCall[] | null
}

/**
 * Ends a run that nobody holds. The conversation is locked by the caller; the run's row is locked here and
 * must be queued. What an earlier attempt said is kept as partial.
 * @returns null when the run is not queued (any more)
 */
export async function endQueuedRun(
  store: Store,
  db: Db,
  conversation: { deletedAt: Date | null },
  runId: string,
  cause: EndCause,
): Promise<Extract<Finished, { kind: 'finished' }> | null> {
  const run = await row(
    db,
    sql<QueuedRun>`
      SELECT r.id, r.tenant_id, r.conversation_id, r.turn, r.execution_epoch, r.last_sequence,
        i.thread_id, i.wire_run_id, i.tools, i.open_calls
      FROM holdfast.runs r JOIN holdfast.run_inputs i ON i.run_id = r.id
      WHERE r.id = ${runId} AND r.state = 'queued' FOR NO KEY UPDATE OF r`,
  )
  if (!run) return null
  const stored = await rows(
    db,
    sql<{ message_id: string }>`
      SELECT message_id FROM holdfast.conversation_messages
      WHERE conversation_id = ${run.conversation_id} AND turn <= ${run.turn}`,
  )
  const { fold } = await loadFold(db, runId)
  const ending = endingOf({
    fold,
    cause,
    threadId: run.thread_id,
    runId: run.wire_run_id,
    storedIds: new Set(stored.map((message) => message.message_id)),
    frontEndTools: new Set(run.tools?.map((tool) => tool.name)),
    openCalls: run.open_calls ?? [],
    // It ends by failure or stop, which leaves nothing to be answered.
    followed: false,
    mintId: () => newId(store),
  })
  return await endRun(
    db,
    {
      runId,
      conversationId: run.conversation_id,
      tenantId: run.tenant_id,
      turn: run.turn,
      epoch: run.execution_epoch,
      lastSequence: run.last_sequence,
      hidden: conversation.deletedAt !== null,
      from: 'queued',
      eventId: newId(store),
    },
    ending,
  )
}

/** What the sweep did: ids of runs whose followers, or whose runners, have to be woken. */
export type Swept = {
  readonly ended: readonly string[]
  readonly due: readonly string[]
  /** Why some could not be ended; they are looked at again. */
  readonly failed: readonly Error[]
}

/** Rows of which a sweep picks those that it ends. */
const LOOKED_AT = 1000

/**
 * Ends queued runs that waited too long, passed their deadline, are out of attempts or carry a cancel mark.
 * Row by row, conversation first, so that it never holds more than one conversation. The look that found
 * a row is only a hint; what counts is asked again under the locks. In no order, so that those which cannot be ended do
 * not stand in the way of the others. Index: runs_queue_until, runs_queued_marked.
 */
export async function endOverdueQueued(store: Store, limit: number): Promise<Swept> {
  const overdue = await rows(
    store,
    sql<{ id: string; conversation_id: string }>`
      SELECT id, conversation_id FROM (
        (SELECT id, conversation_id FROM holdfast.runs
         WHERE state = 'queued' AND queue_until <= (SELECT clock_timestamp()) ORDER BY queue_until LIMIT ${LOOKED_AT})
        UNION
        (SELECT id, conversation_id FROM holdfast.runs
         WHERE state = 'queued' AND (cancel_requested_at IS NOT NULL OR attempts_used >= max_attempts)
         LIMIT ${LOOKED_AT})) overdue
      ORDER BY random() LIMIT ${limit}`,
  )
  const ended: string[] = []
  const due: string[] = []
  const failed: Error[] = []
  for (const run of overdue) {
    try {
      const finished = await endOverdue(store, run)
      if (finished) ended.push(run.id)
      if (finished?.nextRunId) due.push(finished.nextRunId)
    } catch (error) {
      // One that cannot be ended now must not keep the others from it.
      failed.push(asError(error))
    }
  }
  return { ended, due, failed }
}

async function endOverdue(
  store: Store,
  { id, conversation_id: conversationId }: { id: string; conversation_id: string },
) {
  return await inTransaction(store, async (db) => {
    const conversation = await lockConversation(db, conversationId)
    const cause = await row(
      db,
      sql<Overdue>`
        SELECT cancel_requested_at IS NOT NULL AS cancel, deadline_at <= clock_timestamp() AS deadline,
          attempts_used >= max_attempts AS exhausted
        FROM holdfast.runs WHERE id = ${id} AND state = 'queued' AND (queue_until <= clock_timestamp()
          OR cancel_requested_at IS NOT NULL OR attempts_used >= max_attempts)`,
    )
    if (!conversation || !cause) return null
    return await endQueuedRun(store, db, conversation, id, causeOf(cause))
  })
}

type Overdue = { cancel: boolean; deadline: boolean | null; exhausted: boolean }

function causeOf(overdue: Overdue): EndCause {
  if (overdue.cancel) return { kind: 'cancel' }
  if (overdue.deadline) return { kind: 'error', code: 'deadline_exceeded' }
  return { kind: 'error', code: overdue.exhausted ? 'attempts_exhausted' : 'queue_timeout' }
}

/**
 * Repairs what no transaction should have left behind: a parked turn with nothing before it.
 * Index: runs_parked, runs_unfinished.
 */
export async function unparkMissedHeads(store: Store): Promise<string[]> {
  const missed = await rows(
    store,
    sql<{ id: string }>`
      UPDATE holdfast.runs
      SET available_at = clock_timestamp(), queue_until = clock_timestamp() + max_queue_ms * interval '1 ms'
      WHERE id = ANY (ARRAY(
          SELECT p.id FROM holdfast.runs p
          WHERE p.state = 'queued' AND p.available_at = 'infinity' AND NOT EXISTS (
            SELECT FROM holdfast.runs b WHERE b.conversation_id = p.conversation_id
              AND b.state IN ('queued', 'running') AND b.turn < p.turn)
          LIMIT 200 FOR NO KEY UPDATE SKIP LOCKED))
        AND state = 'queued' AND available_at = 'infinity'
      RETURNING id`,
  )
  return missed.map((run) => run.id)
}
