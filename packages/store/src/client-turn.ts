import { createHash } from 'node:crypto'
import { type ContentPart, mapMedia, type RunState } from '@holdfast/protocol'
import { sql } from 'kysely'
import { attachmentIdOf } from './attachment.ts'
import type { CreateRun, CreateRunOutcome, RunReceipt } from './create-run-request.ts'
import type { Principal } from './principal.ts'
import { type Db, row, rows, type Store } from './store.ts'

/** The answer to a turn that was stored before, or null if it is new. Counts before every other refusal. */
export async function findTurn(
  store: Store,
  principal: Principal,
  request: CreateRun,
): Promise<CreateRunOutcome | null> {
  const turn = await row(
    store,
    sql<{ run_id: string; agent: string | null; fingerprint: string }>`
      SELECT run_id, agent, fingerprint FROM holdfast.client_turns
      WHERE tenant_id = ${principal.tenantId} AND user_id = ${principal.userId}
        AND client_turn_id = ${request.clientTurnId}`,
  )
  if (!turn) return await findMessage(store, principal, request)
  const run = await readReceipt(store, turn.run_id)
  if (!run) return { kind: 'turn_gone' }
  const sameAgent = (request.agent ?? null) === turn.agent || request.agent === run.agent
  const sameConversation =
    (request.conversationId === undefined || request.conversationId === run.conversationId) &&
    (request.threadId === undefined || request.threadId === run.threadId)
  const same = sameAgent && sameConversation && fingerprintsOf(request).includes(turn.fingerprint)
  return same ? { kind: 'repeated', run } : { kind: 'turn_mismatch' }
}

// A client that lost its stream says the same again, under a run id that is new to us.
async function findMessage(
  store: Store,
  principal: Principal,
  request: CreateRun,
): Promise<CreateRunOutcome | null> {
  const messageId = request.messageId ?? request.toolResults?.at(-1)?.messageId
  if (messageId === undefined || request.threadId === undefined || request.resume?.length)
    return null
  const stored = await row(
    store,
    sql<{ run_id: string }>`
      SELECT m.run_id FROM holdfast.conversations c
      JOIN holdfast.conversation_messages m ON m.conversation_id = c.id AND m.message_id = ${messageId}
      WHERE c.tenant_id = ${principal.tenantId} AND c.user_id = ${principal.userId}
        AND c.external_id = ${request.threadId} AND c.deleted_at IS NULL`,
  )
  const run = stored && (await readReceipt(store, stored.run_id))
  if (!run) return null
  // From now on the new id names the same turn, also for a cancel.
  await takeTurn(store, principal, request, run.runId)
  return { kind: 'repeated', run }
}

async function readReceipt(store: Store, runId: string): Promise<RunReceipt | null> {
  const run = await row(
    store,
    sql<{
      conversation_id: string
      thread_id: string
      agent: string
      state: RunState
      last_sequence: number
    }>`
      SELECT r.conversation_id, i.thread_id, r.agent, r.state, r.last_sequence FROM holdfast.runs r
      JOIN holdfast.conversations c ON c.id = r.conversation_id AND c.deleted_at IS NULL
      JOIN holdfast.run_inputs i ON i.run_id = r.id WHERE r.id = ${runId}`,
  )
  return (
    run && {
      runId,
      conversationId: run.conversation_id,
      threadId: run.thread_id,
      agent: run.agent,
      state: run.state,
      sequence: run.last_sequence,
    }
  )
}

/** Stores the turn; false: another request did so at the same moment. Waits for it to be decided. */
export async function takeTurn(
  db: Db | Store,
  principal: Principal,
  request: CreateRun,
  runId: string,
): Promise<boolean> {
  const taken = await rows(
    db,
    sql`INSERT INTO holdfast.client_turns (tenant_id, user_id, client_turn_id, run_id, agent, fingerprint)
        VALUES (${principal.tenantId}, ${principal.userId}, ${request.clientTurnId}, ${runId},
                ${request.agent ?? null}, ${fingerprintOf(withDigests(request))})
        ON CONFLICT DO NOTHING RETURNING run_id`,
  )
  return taken.length > 0
}

/** Turns of before attachments were compared as they had been sent, and may still be sent again. */
function fingerprintsOf(request: CreateRun): string[] {
  return [fingerprintOf(withDigests(request)), fingerprintOf(request)]
}

/** A client that was told of a reference may send that instead of the bytes, and says the same. */
function withDigests({ message, toolResults, ...request }: CreateRun): CreateRun {
  const digested = (content: string | ContentPart[]) =>
    mapMedia(content, (part) => {
      const id = attachmentIdOf(part.source)
      return id === null ? part : { ...part, source: { type: 'file', value: id } }
    })
  return {
    ...request,
    ...(message === undefined ? {} : { message: digested(message) }),
    ...(toolResults === undefined
      ? {}
      : { toolResults: toolResults.map((each) => ({ ...each, content: digested(each.content) })) }),
  }
}

/** What must be the same for a repeat to be the same turn, besides agent and conversation. */
function fingerprintOf(request: CreateRun): string {
  const { message, resume, toolResults, replaces, context = [] } = request
  const compared = canonical({
    ...(message === undefined ? {} : { message }),
    context,
    ...(resume?.length ? { resume } : {}),
    ...(toolResults?.length ? { toolResults } : {}),
    ...(replaces === undefined ? {} : { replaces }),
  })
  return createHash('sha256').update(compared).digest('hex')
}

/** JSON with sorted keys: equal values give equal text, whatever order a client wrote them in. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) =>
    typeof part === 'object' && part !== null && !Array.isArray(part)
      ? Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
      : part,
  )
}
