import { type AgUiEvent, type RunState } from '@holdfast/protocol'
import { sql } from 'kysely'
import { PLANNED_ANEW } from './answered-pool.ts'
import type { Principal } from './principal.ts'
import { type Db, row, rows, type Store } from './store.ts'

/** An event as the log holds it. `json` is one line, relayed as it is. */
export type LogEvent = { readonly sequence: number; readonly type: string; readonly json: string }

const PAGE_BYTES_MAX = 64 << 10

type EventRow = { run_id: string; sequence: number; type: string; json: string }

/**
 * Puts events behind `base`. Only for transactions that hold the run's row and have just moved its
 * `last_sequence` by as many (the appender has a statement of its own).
 */
export async function insertEvents(
  db: Db,
  run: { runId: string; tenantId: string; epoch: number; base: number },
  events: readonly AgUiEvent[],
): Promise<void> {
  if (events.length === 0) return
  await rows(
    db,
    sql`INSERT INTO holdfast.run_events (run_id, sequence, epoch, tenant_id, type, payload)
        SELECT ${run.runId}::uuid, ${run.base}::bigint + e.k, ${run.epoch}::int, ${run.tenantId}, e.type, e.payload::json
        FROM unnest(${events.map((event) => event.type)}::text[],
                    ${events.map((event) => JSON.stringify(event))}::text[])
          WITH ORDINALITY AS e (type, payload, k)`,
  )
}

/** What a subscriber must know about a run. */
export type RunHead = {
  readonly runId: string
  readonly conversationId: string
  readonly threadId: string
  readonly wireRunId: string
  readonly state: RunState
  readonly sequence: number
}

/** Whether the caller may (still) follow the run, and how far it is. `null`: unknown, foreign or deleted. */
export async function readHead(
  store: Store,
  principal: Principal,
  runId: string,
): Promise<RunHead | null> {
  const head = await row(
    store,
    sql<{
      conversation_id: string
      thread_id: string
      wire_run_id: string
      state: RunState
      last_sequence: number
    }>`
      SELECT r.conversation_id, i.thread_id, i.wire_run_id, r.state, r.last_sequence
      FROM holdfast.runs r
      JOIN holdfast.conversations c ON c.id = r.conversation_id AND c.deleted_at IS NULL
      JOIN holdfast.run_inputs i ON i.run_id = r.id
      WHERE r.id = ${runId} AND ${visibleTo(principal)}`,
  )
  return (
    head && {
      runId,
      conversationId: head.conversation_id,
      threadId: head.thread_id,
      wireRunId: head.wire_run_id,
      state: head.state,
      sequence: head.last_sequence,
    }
  )
}

/** I20's condition for a table aliased `r` with tenant_id and user_id; operators see their whole tenant. */
export function visibleTo(principal: Principal) {
  return principal.role === 'operator'
    ? sql<boolean>`r.tenant_id = ${principal.tenantId}`
    : sql<boolean>`r.tenant_id = ${principal.tenantId} AND r.user_id = ${principal.userId}`
}

/**
 * One page of exactly the events behind `after`, at most `limit`, and of at most about PAGE_BYTES_MAX: sockets
 * are fed from it, so it is what a slow reader costs. The caller has been authorised by `readHead`.
 * Goes from key to key, because whatever measures a page first would unpack more than it gives.
 * `gone`: the log was pruned behind the cursor; `floor` is the lowest cursor that still works.
 */
export async function readEvents(
  store: Store,
  runId: string,
  after: number,
  limit: number,
): Promise<{ kind: 'events'; events: LogEvent[] } | { kind: 'gone'; floor: number }> {
  const found = await rows(
    store,
    sql<EventRow>`
      WITH RECURSIVE page AS (
        SELECT run_id, sequence, type, payload::text AS json, octet_length(payload::text) AS bytes
        FROM holdfast.run_events WHERE run_id = ${runId} AND sequence = ${after + 1}
        UNION ALL
        SELECT e.run_id, e.sequence, e.type, e.payload::text, p.bytes + octet_length(e.payload::text)
        FROM page p JOIN holdfast.run_events e ON e.run_id = ${runId} AND e.sequence = p.sequence + 1
        WHERE p.bytes < ${PAGE_BYTES_MAX} AND p.sequence < ${after + limit})
      SELECT run_id, sequence, type, json FROM page ORDER BY sequence`,
  )
  if (found[0]?.sequence === after + 1) return { kind: 'events', events: found.map(asLogEvent) }
  // Nothing, or a hole: either there is nothing yet, or what the cursor needs was pruned.
  const head = await row(
    store,
    sql<{ last_sequence: number; next: number | null }>`
      SELECT last_sequence, (SELECT min(sequence) FROM holdfast.run_events e
                             WHERE e.run_id = r.id AND e.sequence > ${after}) AS next
      FROM holdfast.runs r WHERE id = ${runId}`,
  )
  if (!head || head.last_sequence <= after) return { kind: 'events', events: [] }
  if (head.next === after + 1) return await readEvents(store, runId, after, limit)
  return { kind: 'gone', floor: head.next === null ? head.last_sequence : head.next - 1 }
}

/**
 * New events of many followed runs in one query; only runs with something new appear.
 * Index: runs by primary key as the filter, then the primary key of run_events for those alone. Planned each time, since
 * a plan for any number of runs goes from row to row, and many neighbours are read faster together.
 */
export async function tailRuns(
  store: Store,
  follows: readonly { runId: string; after: number }[],
  limitPerRun: number,
): Promise<{ runId: string; events: LogEvent[] }[]> {
  if (follows.length === 0) return []
  const found = await rows(
    store,
    sql<EventRow>`
      ${sql.raw(PLANNED_ANEW)} SELECT f.id AS run_id, e.sequence, e.type, e.json
      FROM unnest(${follows.map((follow) => follow.runId)}::uuid[],
                  ${follows.map((follow) => follow.after)}::bigint[]) AS f (id, after)
      JOIN holdfast.runs r ON r.id = f.id AND r.last_sequence > f.after
      CROSS JOIN LATERAL (
        SELECT sequence, type, payload::text AS json FROM holdfast.run_events e
        WHERE e.run_id = f.id AND e.sequence > f.after ORDER BY sequence LIMIT ${limitPerRun}) e
      ORDER BY f.id, e.sequence`,
  )
  const byRun = Map.groupBy(found, (event) => event.run_id)
  return [...byRun].map(([runId, events]) => ({ runId, events: events.map(asLogEvent) }))
}

function asLogEvent({ sequence, type, json }: EventRow): LogEvent {
  return { sequence, type, json }
}
