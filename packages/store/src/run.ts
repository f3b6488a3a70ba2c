import {
  RUN_ERROR_MESSAGES,
  type RunErrorCode,
  type RunOutcome,
  type RunState,
  type TokenUsage,
} from '@holdfast/protocol'
import { type RawBuilder, sql } from 'kysely'
import { asCursor, fromCursor } from './cursor.ts'
import { visibleTo } from './event-log.ts'
import type { Principal } from './principal.ts'
import { row, rows, type Store } from './store.ts'

/** A run as its followers may know it. Times are ISO 8601. */
export type RunView = {
  readonly runId: string
  readonly conversationId: string
  readonly threadId: string
  readonly agent: string
  readonly state: RunState
  readonly outcome: RunOutcome | null
  readonly epoch: number
  readonly attemptsUsed: number
  readonly sequence: number
  readonly createdAt: string
  readonly startedAt: string | null
  readonly finishedAt: string | null
  readonly cancelRequestedAt: string | null
  readonly error: { readonly code: RunErrorCode; readonly message: string } | null
  readonly result: unknown
  readonly usage: readonly TokenUsage[]
  readonly attempts: readonly {
    readonly epoch: number
    readonly runner: string
    readonly startedAt: string
    readonly endedAt: string | null
    readonly outcome: string | null
  }[]
  readonly artifacts: readonly {
    readonly name: string
    readonly mediaType: string
    readonly bytes: number
    readonly createdAt: string
  }[]
  /** Effects whose outcome nobody knows: those that an earlier attempt, or one that has ended, has left open. */
  readonly inDoubt: readonly {
    readonly step: string
    readonly idempotencyKey: string
    readonly since: string
  }[]
}

type RunRow = {
  id: string
  conversation_id: string
  thread_id: string
  agent: string
  state: RunState
  outcome: RunOutcome | null
  execution_epoch: number
  attempts_used: number
  last_sequence: number
  created_at: Date
  started_at: Date | null
  finished_at: Date | null
  cancel_requested_at: Date | null
  error_code: RunErrorCode | null
  result: unknown
  usage: TokenUsage[] | null
  attempts: RunView['attempts'] | null
  artifacts: RunView['artifacts'] | null
  in_doubt: RunView['inDoubt'] | null
}

export type RunFilter = {
  readonly state?: RunState | undefined
  readonly agent?: string | undefined
  readonly conversationId?: string | undefined
  readonly limit: number
  readonly cursor?: string | undefined
  /** An operator's: those of the whole tenant. */
  readonly all?: boolean | undefined
}

/** `null`: unknown, foreign or deleted; these look the same. */
export async function readRun(
  store: Store,
  principal: Principal,
  runId: string,
): Promise<RunView | null> {
  const found = await row(store, select(sql`r.id = ${runId} AND ${visibleTo(principal)}`, 1))
  return found && asView(found)
}

/** Newest first; one's own, unless an operator asks for all. */
export async function listRuns(
  store: Store,
  principal: Principal,
  filter: RunFilter,
): Promise<{ kind: 'page'; runs: RunView[]; nextCursor: string | null } | { kind: 'bad_cursor' }> {
  const before = fromCursor(filter.cursor)
  if (before === 'bad') return { kind: 'bad_cursor' }
  const everything = filter.all === true && principal.role === 'operator'
  const conditions = [
    visibleTo(everything ? principal : { ...principal, role: 'user' }),
    ...(filter.state === undefined ? [] : [sql`r.state = ${filter.state}`]),
    ...(filter.agent === undefined ? [] : [sql`r.agent = ${filter.agent}`]),
    ...(filter.conversationId === undefined
      ? []
      : [sql`r.conversation_id = ${filter.conversationId}`]),
    ...(before === null ? [] : [sql`r.id < ${before}`]),
  ]
  const found = await rows(store, select(sql.join(conditions, sql` AND `), filter.limit + 1))
  const runs = found.slice(0, filter.limit).map(asView)
  const last = runs.at(-1)
  return {
    kind: 'page',
    runs,
    nextCursor: found.length > filter.limit && last ? asCursor(last.runId) : null,
  }
}

// By name: what is prepared outlives a migration that adds a column, and then gives no row that has become wider.
function select(condition: RawBuilder<unknown>, limit: number) {
  return sql<RunRow>`
    SELECT r.id, r.conversation_id, r.agent, r.state, r.outcome, r.execution_epoch, r.attempts_used, r.last_sequence,
      r.created_at, r.started_at, r.finished_at, r.cancel_requested_at, r.error_code, i.thread_id, x.result, x.usage,
      (SELECT json_agg(json_build_object('epoch', a.epoch, 'runner', a.runner,
                'startedAt', a.started_at, 'endedAt', a.ended_at, 'outcome', a.outcome) ORDER BY a.epoch)
       FROM holdfast.run_attempts a WHERE a.run_id = r.id AND a.reason <> 'ending') AS attempts,
      (SELECT json_agg(json_build_object('name', f.name, 'mediaType', f.media_type, 'bytes', f.bytes,
                'createdAt', f.created_at) ORDER BY f.name)
       FROM holdfast.artifacts f WHERE f.run_id = r.id) AS artifacts,
      (SELECT json_agg(json_build_object('step', s.step_key, 'idempotencyKey', s.idempotency_key,
                'since', s.intent_at) ORDER BY s.intent_at, s.step_key)
       FROM holdfast.run_steps s WHERE s.run_id = r.id AND s.outcome IS NULL
         AND (r.state <> 'running' OR s.intent_epoch < r.execution_epoch)) AS in_doubt
    FROM holdfast.runs r
    JOIN holdfast.conversations c ON c.id = r.conversation_id AND c.deleted_at IS NULL
    JOIN holdfast.run_inputs i ON i.run_id = r.id
    LEFT JOIN holdfast.run_results x ON x.run_id = r.id
    WHERE ${condition} ORDER BY r.id DESC LIMIT ${limit}`
}

function asView(run: RunRow): RunView {
  return {
    runId: run.id,
    conversationId: run.conversation_id,
    threadId: run.thread_id,
    agent: run.agent,
    state: run.state,
    outcome: run.outcome,
    epoch: run.execution_epoch,
    attemptsUsed: run.attempts_used,
    sequence: run.last_sequence,
    createdAt: run.created_at.toISOString(),
    startedAt: run.started_at?.toISOString() ?? null,
    finishedAt: run.finished_at?.toISOString() ?? null,
    cancelRequestedAt: run.cancel_requested_at?.toISOString() ?? null,
    error: run.error_code && { code: run.error_code, message: RUN_ERROR_MESSAGES[run.error_code] },
    result: run.result ?? null,
    usage: run.usage ?? [],
    attempts: (run.attempts ?? []).map((attempt) => ({
      ...attempt,
      startedAt: new Date(attempt.startedAt).toISOString(),
      endedAt: attempt.endedAt && new Date(attempt.endedAt).toISOString(),
    })),
    artifacts: (run.artifacts ?? []).map((artifact) => ({
      ...artifact,
      createdAt: new Date(artifact.createdAt).toISOString(),
    })),
    inDoubt: (run.in_doubt ?? []).map((step) => ({
      ...step,
      since: new Date(step.since).toISOString(),
    })),
  }
}
