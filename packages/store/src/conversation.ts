import {
  type AgUiEvent,
  hasExpired,
  type Interrupt,
  type Message,
  type MessageStatus,
  type RunState,
} from '@holdfast/protocol'
import { sql } from 'kysely'
import { readTurns } from './attempt-input.ts'
import { asCursor, fromCursor } from './cursor.ts'
import { visibleTo } from './event-log.ts'
import { loadFold } from './fold-record.ts'
import { readAsked } from './pending.ts'
import type { Principal } from './principal.ts'
import { LAST_TURN } from './replacement.ts'
import { type Db, inSnapshot, row, rows, type Store } from './store.ts'

export type ConversationSummary = {
  readonly conversationId: string
  readonly externalId: string
  readonly title: string | null
  readonly createdAt: string
  readonly updatedAt: string
}

/** `GET /conversations/{id}`: one snapshot, ordered by (turn, index). */
export type ConversationView = ConversationSummary & {
  readonly messages: readonly {
    readonly turn: number
    readonly index: number
    readonly runId: string
    readonly status: MessageStatus
    readonly createdAt: string
    readonly message: Message
  }[]
  /** The lowest unfinished turn; `messages` hold its answer as far as `sequence`. */
  readonly activeRun: {
    readonly runId: string
    readonly state: RunState
    readonly sequence: number
    readonly open: readonly AgUiEvent[]
  } | null
  readonly queuedRuns: readonly {
    readonly runId: string
    readonly turn: number
    /** What the user says, or else the last answer that it brings; `null` if it brings nothing. */
    readonly message: Message | null
  }[]
  /** What the last turn asked and nobody answered yet; what has expired is not among them. */
  readonly pendingInterrupts: readonly (Interrupt & { readonly runId: string })[]
  readonly state: unknown
}

type SummaryRow = {
  id: string
  external_id: string
  title: string | null
  created_at: Date
  updated_at: Date
}

/** One's own conversations, newest first. */
export async function listConversations(
  store: Store,
  principal: Principal,
  page: { limit: number; cursor?: string | undefined },
): Promise<
  | { kind: 'page'; conversations: ConversationSummary[]; nextCursor: string | null }
  | { kind: 'bad_cursor' }
> {
  const before = fromCursor(page.cursor)
  if (before === 'bad') return { kind: 'bad_cursor' }
  const found = await rows(
    store,
    sql<SummaryRow>`
      SELECT id, external_id, title, created_at, updated_at FROM holdfast.conversations r
      WHERE tenant_id = ${principal.tenantId} AND user_id = ${principal.userId} AND deleted_at IS NULL
        AND ${before === null ? sql`true` : sql`id < ${before}`}
      ORDER BY id DESC LIMIT ${page.limit + 1}`,
  )
  const conversations = found.slice(0, page.limit).map(asSummary)
  const last = conversations.at(-1)
  return {
    kind: 'page',
    conversations,
    nextCursor: found.length > page.limit && last ? asCursor(last.conversationId) : null,
  }
}

/**
 * A conversation as it is at one moment: what is stored, the running answer folded from its log, and where
 * that log stood, so that following it from there continues exactly.
 */
export async function readConversation(
  store: Store,
  principal: Principal,
  conversationId: string,
): Promise<ConversationView | null> {
  return await inSnapshot(store, async (db) => {
    const conversation = await row(
      db,
      sql<SummaryRow & { state: unknown; asked_by: string | null }>`
        SELECT id, external_id, title, created_at, updated_at, state, asked_by FROM holdfast.conversations r
        WHERE id = ${conversationId} AND deleted_at IS NULL AND ${visibleTo(principal)}`,
    )
    if (!conversation) return null
    const [active, ...waiting] = await rows(
      db,
      sql<{ id: string; turn: number; state: RunState; started_at: Date | null; created_at: Date }>`
        SELECT id, turn, state, started_at, created_at FROM holdfast.runs
        WHERE conversation_id = ${conversationId} AND state IN ('queued', 'running') ORDER BY turn`,
    )
    const stored = await readTurns(db, conversationId, LAST_TURN)
    const shown = stored.filter((message) => !active || message.turn <= active.turn)
    const running = active ? await loadFold(db, active.id) : null
    const known = new Set(shown.map(({ message }) => message.id))
    const said = running?.fold.messages.filter((message) => !known.has(message.id)) ?? []
    return {
      ...asSummary(conversation),
      messages: [
        ...shown.map((message) => ({ ...message, createdAt: message.createdAt.toISOString() })),
        ...said.map((message, k) => ({
          turn: active?.turn ?? 0,
          index: shown.filter(({ runId }) => runId === active?.id).length + k,
          runId: active?.id ?? '',
          status: 'partial' as const,
          createdAt: (
            active?.started_at ??
            active?.created_at ??
            conversation.created_at
          ).toISOString(),
          message,
        })),
      ],
      activeRun:
        active && running
          ? {
              runId: active.id,
              state: active.state,
              sequence: running.sequence,
              open: running.fold.open.map((construct) => construct.start),
            }
          : null,
      queuedRuns: waiting.map((run) => {
        const brought = stored.filter((message) => message.runId === run.id)
        return { runId: run.id, turn: run.turn, message: brought.at(-1)?.message ?? null }
      }),
      pendingInterrupts: await readPendingInterrupts(db, conversationId, conversation.asked_by),
      state: running?.fold.state ?? conversation.state ?? null,
    }
  })
}

async function readPendingInterrupts(db: Db, conversationId: string, askedBy: string | null) {
  const asked = await readAsked(db, conversationId, askedBy)
  if (!asked) return []
  return asked.pending.interrupts
    .filter((interrupt) => !hasExpired(interrupt, asked.atMs))
    .map((interrupt) => ({ ...interrupt, runId: asked.runId }))
}

/** Gives a conversation a title. `null`: unknown, foreign or deleted. */
export async function renameConversation(
  store: Store,
  principal: Principal,
  conversationId: string,
  title: string,
): Promise<ConversationSummary | null> {
  const renamed = await row(
    store,
    sql<SummaryRow>`
      UPDATE holdfast.conversations r SET title = ${title}, updated_at = clock_timestamp()
      WHERE id = ${conversationId} AND deleted_at IS NULL AND ${visibleTo(principal)}
      RETURNING id, external_id, title, created_at, updated_at`,
  )
  return renamed && asSummary(renamed)
}

function asSummary(found: SummaryRow): ConversationSummary {
  return {
    conversationId: found.id,
    externalId: found.external_id,
    title: found.title,
    createdAt: found.created_at.toISOString(),
    updatedAt: found.updated_at.toISOString(),
  }
}
