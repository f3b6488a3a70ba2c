import { type AgUiEvent, LIMITS, type Message, type RunState } from '@holdfast/protocol'
import { sql } from 'kysely'
import { type Kept, keepAttachments } from './attachment.ts'
import { cancelLocked } from './cancel.ts'
import { findTurn, takeTurn } from './client-turn.ts'
import { titleOf } from './conversation-title.ts'
import {
  type CreateRun,
  type CreateRunOutcome,
  Refused,
  type RunReceipt,
} from './create-run-request.ts'
import { insertEvents } from './event-log.ts'
import { lockConversation } from './lease.ts'
import { isUniqueViolation } from './pg-error.ts'
import type { Principal } from './principal.ts'
import { findReplaced, hideTurns } from './replacement.ts'
import { type Settled, settlePending } from './settle-pending.ts'
import { type Db, inTransaction, newId, row, rows, type Store } from './store.ts'

/** The same turn was stored by another request at the same moment. */
class Raced extends Error {}

/**
 * Accepts a turn, in one transaction: the client turn, the user's message, the run and its first event
 * (I18). The same client turn of the same user is the same run; of several at once, the unique key lets
 * one through and the others answer with it. Locks: the client turn's key, conversation, runs by turn.
 */
export async function createRun(
  store: Store,
  principal: Principal,
  request: CreateRun,
): Promise<CreateRunOutcome> {
  for (let isTaken = false; ; ) {
    const earlier = await findTurn(store, principal, request)
    if (earlier) return earlier
    try {
      return await inTransaction(store, async (db) => {
        return { kind: 'created', ...(await accept(store, db, principal, request)) }
      })
    } catch (error) {
      if (error instanceof Refused) return error.outcome
      const named = isUniqueViolation(error, 'conversation_messages_id')
      const raced =
        error instanceof Raced || named || isUniqueViolation(error, 'conversations_external')
      if (!raced) throw error
      // A repeat would have been found by its message: these ids name another one, or two at once.
      if (named && isTaken) return { kind: 'message_id_taken' }
      isTaken ||= named
    }
  }
}

async function accept(
  store: Store,
  db: Db,
  principal: Principal,
  request: CreateRun,
): Promise<{ run: RunReceipt; cancelled: readonly string[] }> {
  const runId = newId(store)
  if (!(await takeTurn(db, principal, request, runId))) throw new Raced('turn')
  const conversation = await enterConversation(store, db, principal, request)
  const settled = await settlePending(store, db, conversation, request)
  const { parked, cancelled } = conversation.isNew
    ? { parked: false, cancelled: [] }
    : await makeRoom(store, db, conversation.id, request.onActive)
  const agent = await findAgent(db, request.agent ?? settled.agent)
  await replace(db, principal, conversation, request)
  const kept = await keepAttachments(
    db,
    { id: conversation.id, tenantId: principal.tenantId },
    settled.messages,
  )
  const turn = await takePlace(db, conversation, kept)
  await rows(
    db,
    sql`INSERT INTO holdfast.runs
          (id, tenant_id, user_id, conversation_id, turn, agent, max_attempts, on_lost, last_sequence,
           available_at, queue_until, max_queue_ms, deadline_ms)
        VALUES (${runId}, ${principal.tenantId}, ${principal.userId}, ${conversation.id}, ${turn}, ${agent.name},
          ${agent.limits.maxAttempts}, ${agent.limits.onLost}, 1,
          ${parked ? sql`'infinity'` : sql`clock_timestamp()`},
          ${parked ? null : sql`clock_timestamp() + ${agent.limits.maxQueueMs} * interval '1 ms'`},
          ${agent.limits.maxQueueMs}, ${Math.min(agent.limits.deadlineMs, request.deadlineMs ?? Infinity)})`,
  )
  const wireRunId = request.wireRunId ?? runId
  await writeInput(db, principal, request, {
    runId,
    threadId: conversation.threadId,
    wireRunId,
    limits: agent.limits,
    settled,
  })
  const place = { conversationId: conversation.id, turn, runId }
  await writeMessages(db, principal, place, kept.messages)
  await insertEvents(db, { runId, tenantId: principal.tenantId, epoch: 0, base: 0 }, [
    runStarted(conversation.threadId, wireRunId, kept.messages),
  ])
  const run = {
    runId,
    conversationId: conversation.id,
    threadId: conversation.threadId,
    agent: agent.name,
    state: 'queued',
    sequence: 1,
  } as const
  return { run, cancelled }
}

async function replace(
  db: Db,
  { tenantId }: Principal,
  { id }: Conversation,
  { replaces }: CreateRun,
): Promise<void> {
  if (replaces === undefined) return
  const fromTurn = await findReplaced(db, id, replaces)
  if (fromTurn === null) throw new Refused({ kind: 'not_found' })
  await hideTurns(db, { id, tenantId }, fromTurn)
}

type Conversation = { id: string; threadId: string; askedBy: string | null; isNew: boolean }

/** The conversation of the turn, made if the request may make one; locked from here on. */
async function enterConversation(
  store: Store,
  db: Db,
  principal: Principal,
  request: CreateRun,
): Promise<Conversation> {
  const found =
    request.conversationId === undefined &&
    request.threadId === undefined &&
    request.replaces === undefined
      ? null
      : await row(
          db,
          sql<{ id: string; external_id: string }>`
            SELECT id, external_id FROM holdfast.conversations
            WHERE tenant_id = ${principal.tenantId} AND user_id = ${principal.userId} AND deleted_at IS NULL
              AND ${namedBy(request)}`,
        )
  if (!found && (request.conversationId ?? request.replaces) !== undefined) {
    throw new Refused({ kind: 'not_found' })
  }
  if (found) {
    const locked = await lockConversation(db, found.id)
    if (!locked || locked.deletedAt) throw new Refused({ kind: 'not_found' })
    const { askedBy } = locked
    return { id: found.id, threadId: found.external_id, askedBy, isNew: false }
  }
  const id = newId(store)
  const threadId = request.threadId ?? id
  await rows(
    db,
    sql`INSERT INTO holdfast.conversations (id, tenant_id, user_id, external_id)
        VALUES (${id}, ${principal.tenantId}, ${principal.userId}, ${threadId})`,
  )
  return { id, threadId, askedBy: null, isNew: true }
}

/** How a request names its conversation: by our id, by its own, or by a run of it. */
function namedBy({ conversationId, threadId, replaces }: CreateRun) {
  if (conversationId !== undefined) return sql`id = ${conversationId}`
  if (threadId !== undefined) return sql`external_id = ${threadId}`
  return sql`id = (SELECT conversation_id FROM holdfast.runs WHERE id = ${replaces})`
}

type Limits = {
  maxAttempts: number
  onLost: 'restart' | 'fail'
  maxQueueMs: number
  deadlineMs: number
  history: string
  effects: string
}

async function findAgent(
  db: Db,
  name: string | undefined,
): Promise<{ name: string; limits: Limits }> {
  const agent = await row(
    db,
    sql<{ name: string; limits: Limits }>`
      SELECT name, limits FROM holdfast.agents
      WHERE ${name === undefined ? sql`is_default` : sql`name = ${name}`} ORDER BY recorded_at DESC LIMIT 1`,
  )
  if (!agent) throw new Refused({ kind: 'unknown_agent' })
  return agent
}

/** Decides by `onActive` whether the turn may enter now or behind others. A new statement after the lock. */
async function makeRoom(
  store: Store,
  db: Db,
  conversationId: string,
  onActive: CreateRun['onActive'],
): Promise<{ parked: boolean; cancelled: readonly string[] }> {
  const unfinished = await rows(
    db,
    sql<{ id: string; state: RunState }>`
      SELECT id, state FROM holdfast.runs
      WHERE conversation_id = ${conversationId} AND state IN ('queued', 'running') ORDER BY turn`,
  )
  const [lowest] = unfinished
  if (!lowest) return { parked: false, cancelled: [] }
  const waiting = unfinished.length - 1
  if (onActive === 'reject' || (onActive === 'enqueue' && waiting >= LIMITS.queuedTurnsMax)) {
    throw new Refused({ kind: 'conversation_busy', activeRunId: lowest.id })
  }
  if (onActive === 'enqueue') return { parked: true, cancelled: [] }
  // From the last to the first, so that ending one does not make the next one due for a moment.
  for (const { id } of unfinished.toReversed()) {
    await cancelLocked(store, db, { deletedAt: null }, id)
  }
  const left = await rows(
    db,
    sql<{ id: string }>`
      SELECT id FROM holdfast.runs
      WHERE conversation_id = ${conversationId} AND state IN ('queued', 'running')`,
  )
  return { parked: left.length > 0, cancelled: left.map((run) => run.id) }
}

async function takePlace(
  db: Db,
  conversation: Conversation,
  { messages, bytes: attachmentBytes }: Kept,
): Promise<number> {
  const bytes = messages.reduce((sum, each) => sum + Buffer.byteLength(JSON.stringify(each)), 0)
  const said = messages.find((message) => message.role === 'user')
  const place = await row(
    db,
    sql<{ turn: number }>`
      UPDATE holdfast.conversations
      SET next_turn = next_turn + 1, asked_by = NULL, bytes = bytes + ${bytes},
          attachment_bytes = attachment_bytes + ${attachmentBytes}, updated_at = clock_timestamp(),
          title = coalesce(title, ${said ? titleOf(said) : null})
      WHERE id = ${conversation.id} AND bytes + ${bytes} <= ${LIMITS.conversationBytesMax}
        AND attachment_bytes + ${attachmentBytes} <= ${LIMITS.conversationAttachmentBytesMax}
      RETURNING next_turn - 1 AS turn`,
  )
  if (!place) throw new Refused({ kind: 'conversation_full' })
  return place.turn
}

async function writeInput(
  db: Db,
  principal: Principal,
  request: CreateRun,
  run: { runId: string; threadId: string; wireRunId: string; limits: Limits; settled: Settled },
) {
  const { settled } = run
  // A turn that only answers goes on under what the turn before it was given, unless it says otherwise.
  const before = request.message === undefined ? settled.runId : null
  const kept = (given: unknown, column: string) =>
    given === undefined && before !== null
      ? sql`(SELECT ${sql.ref(column)} FROM holdfast.run_inputs WHERE run_id = ${before})`
      : sql`${json(given)}::json`
  await rows(
    db,
    sql`INSERT INTO holdfast.run_inputs (run_id, tenant_id, thread_id, wire_run_id, context, state, tools,
          forwarded_props, history, effects, notify_url, resume, open_calls)
        VALUES (${run.runId}, ${principal.tenantId}, ${run.threadId}, ${run.wireRunId},
          ${kept(request.context, 'context')}, ${json(request.state)}::json, ${kept(request.tools, 'tools')},
          ${kept(request.forwardedProps, 'forwarded_props')}, ${run.limits.history}, ${run.limits.effects},
          ${request.notifyUrl ?? null}, ${jsonOf(settled.resume)}::json, ${jsonOf(settled.openCalls)}::json)`,
  )
}

/** Tool results first, in the order of their calls, and last what the user says. Index: the primary key. */
async function writeMessages(
  db: Db,
  principal: Principal,
  place: { conversationId: string; turn: number; runId: string },
  messages: readonly Message[],
) {
  await rows(
    db,
    sql`INSERT INTO holdfast.conversation_messages
          (conversation_id, turn, index, tenant_id, run_id, message_id, role, status, message)
        SELECT ${place.conversationId}::uuid, ${place.turn}::int, m.k - 1, ${principal.tenantId},
          ${place.runId}::uuid, m.id, m.role, 'complete', m.message::json
        FROM unnest(${messages.map(({ id }) => id)}::text[], ${messages.map(({ role }) => role)}::text[],
                    ${messages.map((message) => JSON.stringify(message))}::text[])
          WITH ORDINALITY AS m (id, role, message, k)`,
  )
}

function runStarted(threadId: string, runId: string, messages: readonly Message[]): AgUiEvent {
  return {
    type: 'RUN_STARTED',
    threadId,
    runId,
    protocolVersion: '1.0',
    input: { threadId, runId, messages: [...messages], tools: [], context: [] },
  } as AgUiEvent
}

function jsonOf(list: readonly unknown[]): string | null {
  return list.length > 0 ? JSON.stringify(list) : null
}

function json(value: unknown): string | null {
  return value === undefined ? null : JSON.stringify(value)
}
