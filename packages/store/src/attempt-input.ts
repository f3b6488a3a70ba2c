import {
  type AgUiEvent,
  type ContentPart,
  type Context,
  emptyFold,
  type Fold,
  foldEvents,
  type Message,
  type MessageStatus,
  type ResumeEntry,
  type Tool,
  type UnansweredCall,
} from '@holdfast/protocol'
import { invariant } from '@holdfast/std'
import { sql } from 'kysely'
import { readAttachedContents } from './attached-contents.ts'
import { loadCheckpoint, type SavedCheckpoint } from './checkpoint.ts'
import type { Lease } from './lease.ts'
import { shownTo } from './replacement.ts'
import { readStepsInDoubt, type StepInDoubt } from './steps.ts'
import { type Db, inSnapshot, row, rows, type Store } from './store.ts'

/** What an attempt begins with. All of one moment, which cannot change while the lease holds. */
export type AttemptInput = {
  readonly threadId: string
  readonly wireRunId: string
  /** The stored turns up to this one, with this turn's user message last. */
  readonly history: readonly { readonly message: Message; readonly status: MessageStatus }[]
  /** By message id: contents of the history with the bytes that they refer to. None where no agent will ask. */
  readonly attached: ReadonlyMap<string, readonly ContentPart[]>
  /** Bytes of the conversation's stored messages as JSON. */
  readonly conversationBytes: number
  /** AG-UI state as this turn begins; `undefined`: none. */
  readonly state: unknown
  readonly tools: readonly Tool[]
  readonly context: readonly Context[]
  readonly forwardedProps: Readonly<Record<string, unknown>>
  /** What became of the interrupts of the turn before this one. */
  readonly resume: readonly ResumeEntry[]
  /** Calls of earlier turns that the agent is to answer as it goes on. */
  readonly openCalls: readonly UnansweredCall[]
  readonly historyMode: 'all' | 'complete'
  readonly effects: 'none' | 'idempotent' | 'unknown'
  /** What the log amounts to so far, and how long it is. */
  readonly fold: Fold
  readonly sequence: number
  /** Ids that the log of this conversation has used, lost attempts included. */
  readonly usedIds: ReadonlySet<string>
  /** An earlier attempt began a tool call, or went on with one, whose effect outside is not known to be undone. */
  readonly toolCallStarted: boolean
  /** The cancel came before the attempt could begin. */
  readonly cancelRequested: boolean
  /** Steps that earlier attempts meant to take, and whose outcome nobody knows. */
  readonly stepsInDoubt: readonly StepInDoubt[]
  readonly checkpoint: SavedCheckpoint | null
}

/** Reads what an attempt needs, of one moment. Index: primary keys of all tables. */
export async function readAttemptInput(
  store: Store,
  lease: Lease,
  { withBytes = true }: { withBytes?: boolean } = {},
): Promise<AttemptInput> {
  // Runs begin by the hundred, and each statement is a round trip: most first attempts take one, its own snapshot.
  if (lease.epoch === 1) {
    const input = await readFirstInput(store, lease)
    return {
      ...input,
      ...NOTHING_EARLIER,
      attached: await attachedTo(store, input, lease, withBytes),
    }
  }
  return await inSnapshot(store, async (db) => {
    const input = await readFirstInput(db, lease)
    const used = await readUsedIds(db, lease.runId)
    return {
      ...input,
      attached: await attachedTo(db, input, lease, withBytes),
      usedIds: new Set([...input.usedIds, ...used.ids]),
      toolCallStarted: used.tools || input.openCalls.length > 0,
      stepsInDoubt: await readStepsInDoubt(db, lease),
      checkpoint: await loadCheckpoint(db, lease.runId),
    }
  })
}

const NOTHING_EARLIER = { toolCallStarted: false, stepsInDoubt: [], checkpoint: null }

/** Bytes never change, and stay while the conversation does: they need not be of the same snapshot. */
async function attachedTo(
  on: Store | Db,
  { history }: Pick<AttemptInput, 'history'>,
  { conversationId }: Lease,
  withBytes: boolean,
): Promise<AttemptInput['attached']> {
  if (!withBytes) return new Map()
  const said = history.map(({ message }) => message)
  return await readAttachedContents(on, conversationId, said)
}

type InputRow = {
  turn: number
  last_sequence: number
  thread_id: string
  wire_run_id: string
  context: Context[] | null
  state: unknown
  tools: Tool[] | null
  forwarded_props: Record<string, unknown> | null
  resume: ResumeEntry[] | null
  open_calls: UnansweredCall[] | null
  history: 'all' | 'complete'
  effects: 'none' | 'idempotent' | 'unknown'
  bytes: number
  conversation_state: unknown
  cancel_requested: boolean
  turns: { message: Message; status: MessageStatus }[] | null
  fold: Fold | null
  tail: AgUiEvent[] | null
}

async function readFirstInput(
  on: Store | Db,
  { runId, conversationId }: Lease,
): Promise<Omit<AttemptInput, 'attached' | keyof typeof NOTHING_EARLIER>> {
  const input = await row(
    on,
    sql<InputRow>`
      SELECT r.turn, r.last_sequence, i.thread_id, i.wire_run_id, i.context, i.state, i.tools, i.forwarded_props,
        i.history, i.effects, i.resume, i.open_calls, c.bytes, c.state AS conversation_state,
        r.cancel_requested_at IS NOT NULL AS cancel_requested, f.fold,
        (SELECT json_agg(json_build_object('message', m.message, 'status', m.status) ORDER BY m.turn, m.index)
         FROM holdfast.conversation_messages m
         WHERE m.conversation_id = ${conversationId} AND ${shownTo(sql`r.turn`)}) AS turns,
        (SELECT json_agg(e.payload ORDER BY e.sequence) FROM holdfast.run_events e
         WHERE e.run_id = ${runId} AND e.sequence > coalesce(f.sequence, 0)) AS tail
      FROM holdfast.runs r JOIN holdfast.run_inputs i ON i.run_id = r.id
      JOIN holdfast.conversations c ON c.id = r.conversation_id
      LEFT JOIN holdfast.run_folds f ON f.run_id = r.id
      WHERE r.id = ${runId}`,
  )
  invariant(input, 'a claimed run has an input')
  const history = input.turns ?? []
  return {
    threadId: input.thread_id,
    wireRunId: input.wire_run_id,
    history,
    conversationBytes: input.bytes,
    state: input.state ?? input.conversation_state ?? undefined,
    tools: input.tools ?? [],
    context: input.context ?? [],
    forwardedProps: input.forwarded_props ?? {},
    resume: input.resume ?? [],
    openCalls: input.open_calls ?? [],
    historyMode: input.history,
    effects: input.effects,
    fold: foldEvents(input.fold ?? emptyFold(), input.tail ?? []),
    sequence: input.last_sequence,
    usedIds: new Set(history.flatMap(({ message }) => idsOf(message))),
    cancelRequested: input.cancel_requested,
  }
}

export type StoredMessage = {
  readonly turn: number
  readonly index: number
  readonly runId: string
  readonly status: MessageStatus
  readonly createdAt: Date
  readonly message: Message
}

/** What a turn sees of its conversation's stored messages, by (turn, index) and never by insertion. */
export async function readTurns(
  db: Db,
  conversationId: string,
  upToTurn: number,
): Promise<StoredMessage[]> {
  const found = await rows(
    db,
    sql<{
      turn: number
      index: number
      run_id: string
      status: MessageStatus
      created_at: Date
      message: Message
    }>`
      SELECT turn, index, run_id, status, created_at, message FROM holdfast.conversation_messages m
      WHERE conversation_id = ${conversationId} AND ${shownTo(upToTurn)} ORDER BY turn, index`,
  )
  return found.map((stored) => ({
    turn: stored.turn,
    index: stored.index,
    runId: stored.run_id,
    status: stored.status,
    createdAt: stored.created_at,
    message: stored.message,
  }))
}

// The fold forgets what was withdrawn; ids must stay unique all the same, so the log is asked for its STARTs.
async function readUsedIds(db: Db, runId: string): Promise<{ ids: string[]; tools: boolean }> {
  const starts = await rows(
    db,
    sql<{ type: AgUiEvent['type']; message_id: string | null; tool_call_id: string | null }>`
      SELECT type, payload ->> 'messageId' AS message_id, payload ->> 'toolCallId' AS tool_call_id
      FROM holdfast.run_events
      WHERE run_id = ${runId} AND type = ANY (${[...NAMING]}::text[])`,
  )
  return {
    ids: starts.flatMap(({ message_id, tool_call_id }) =>
      [message_id, tool_call_id].filter((id) => id !== null),
    ),
    tools: starts.some((start) => start.type === 'TOOL_CALL_START'),
  }
}

const NAMING = [
  'TEXT_MESSAGE_START',
  'TOOL_CALL_START',
  'TOOL_CALL_RESULT',
  'REASONING_START',
  'REASONING_MESSAGE_START',
  'ACTIVITY_SNAPSHOT',
] as const

function idsOf(message: Message): string[] {
  const calls = message.role === 'assistant' ? (message.toolCalls ?? []) : []
  return [message.id, ...calls.map((call) => call.id)]
}
