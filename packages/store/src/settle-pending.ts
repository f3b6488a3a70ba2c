import { answersTo, type Message, type ResumeEntry, type UnansweredCall } from '@holdfast/protocol'
import { sql } from 'kysely'
import { type CreateRun, Refused } from './create-run-request.ts'
import { readAsked } from './pending.ts'
import { type Db, newId, row, type Store } from './store.ts'

/** What a new turn brings and finds: its messages, and what its agent is told of the turn before it. */
export type Settled = {
  /** Results of calls that were pending, and last the user's message, if there is one. */
  readonly messages: readonly Message[]
  readonly resume: readonly ResumeEntry[]
  readonly openCalls: readonly UnansweredCall[]
  /** A turn that only answers goes on with the agent and the input of the run that asked. */
  readonly agent: string | undefined
  readonly runId: string | null
}

/**
 * Settles what is pending, in the transaction that accepts the next turn: answers enter the history,
 * a plain message cancels. Under the conversation's lock, so that of several answers one comes first.
 * @throws Refused for answers to what is not pending, and for such as leave something without its answer
 */
export async function settlePending(
  store: Store,
  db: Db,
  { id: conversationId, askedBy }: { id: string; askedBy: string | null },
  request: CreateRun,
): Promise<Settled> {
  const said = await messageOf(store, db, conversationId, request)
  // What is replaced asks nobody any more.
  const asked = request.replaces === undefined ? await readAsked(db, conversationId, askedBy) : null
  const outcome = answersTo(
    asked?.pending ?? { interrupts: [], calls: [] },
    {
      resume: request.resume ?? [],
      toolResults: request.toolResults ?? [],
      says: said !== null,
      ignoreSettled: request.ignoreSettled,
    },
    { atMs: asked?.atMs ?? 0, mintId: () => newId(store) },
  )
  if (outcome.kind === 'closed') throw new Refused({ kind: 'interrupt_closed', ids: outcome.ids })
  if (outcome.kind === 'incomplete') {
    throw new Refused({ kind: 'answers_incomplete', ids: outcome.missing })
  }
  const { results, resume, openCalls } = outcome.answers
  return {
    messages: said ? [...results, said] : results,
    resume,
    openCalls,
    agent: said ? undefined : asked?.agent,
    runId: asked?.runId ?? null,
  }
}

/** A client that resumes may send along the question that it asked before; that one is stored. */
async function messageOf(
  store: Store,
  db: Db,
  conversationId: string,
  { message, messageId, resume }: CreateRun,
): Promise<Message | null> {
  if (message === undefined) return null
  if (messageId === undefined || !resume?.length) {
    return { id: messageId ?? newId(store), role: 'user', content: message }
  }
  const stored = await row(
    db,
    sql`SELECT FROM holdfast.conversation_messages
        WHERE conversation_id = ${conversationId} AND message_id = ${messageId}`,
  )
  return stored ? null : { id: messageId, role: 'user', content: message }
}
