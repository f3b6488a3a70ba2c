import type { TimelineView } from '@holdfast/protocol'
import { sql } from 'kysely'
import { visibleTo } from './event-log.ts'
import type { Principal } from './principal.ts'
import { type Db, inSnapshot, row, rows, type Store } from './store.ts'
import { type OpenSpan, readToolCalls } from './tool-calls.ts'

/** Of spans, and of refused writes: what is more is left out, the oldest are kept. */
const ROWS_MAX = 2000

type Attempt = TimelineView['attempts'][number]
type Span = TimelineView['spans'][number]

/**
 * What happened to a run, in one snapshot, for people who look for the reason. `null`: unknown, foreign or deleted.
 * Index: primary keys, stale_writes_run.
 */
export async function readTimeline(
  store: Store,
  principal: Principal,
  runId: string,
): Promise<TimelineView | null> {
  return await inSnapshot(store, async (db) => {
    const run = await row(
      db,
      sql<{ created_at: Date; state: string; lapsed_at: Date | null; lapsed_ms: number }>`
        SELECT r.created_at, r.state,
          CASE WHEN r.state = 'running' AND r.lease_until <= clock_timestamp() THEN r.lease_until END AS lapsed_at,
          coalesce(extract(epoch FROM clock_timestamp() - r.lease_until) * 1000, 0)::float8 AS lapsed_ms
        FROM holdfast.runs r
        JOIN holdfast.conversations c ON c.id = r.conversation_id AND c.deleted_at IS NULL
        WHERE r.id = ${runId} AND ${visibleTo(principal)}`,
    )
    if (!run) return null
    const attempts = await readAttempts(db, runId)
    const spans = await readSpans(db, runId)
    const hasToolSteps = spans.some((span) => span.kind === 'tool')
    const calls = hasToolSteps ? [] : await readToolCalls(db, runId)
    const lapsed = run.lapsed_at && {
      at: run.lapsed_at.toISOString(),
      ms: Math.round(run.lapsed_ms),
    }
    return {
      runId,
      state: run.state as TimelineView['state'],
      attempts,
      spans: [
        ...waits(run.created_at.toISOString(), attempts, run.state === 'queued'),
        ...[...spans, ...calls].map((span) => settled(span, attempts)),
      ].sort((one, other) => compare(one.start, other.start) || one.epoch - other.epoch),
      leaseGaps: leaseGaps(attempts, lapsed),
      staleWrites: await readStaleWrites(db, runId),
    }
  })
}

async function readAttempts(db: Db, runId: string): Promise<Attempt[]> {
  const found = await rows(
    db,
    sql<{
      epoch: number
      runner: string
      reason: string
      started_at: Date
      ended_at: Date | null
      outcome: string | null
    }>`
      SELECT epoch, runner, reason, started_at, ended_at, outcome FROM holdfast.run_attempts
      WHERE run_id = ${runId} ORDER BY epoch`,
  )
  return found.map(({ started_at, ended_at, ...attempt }) => ({
    ...attempt,
    startedAt: started_at.toISOString(),
    endedAt: ended_at?.toISOString() ?? null,
  }))
}

async function readSpans(db: Db, runId: string): Promise<OpenSpan[]> {
  const found = await rows(
    db,
    sql<{
      span_key: string
      kind: string
      parent: string | null
      epoch: number
      started_at: Date
      ended_at: Date | null
      outcome: Span['outcome']
      effect: boolean
    }>`
      SELECT p.span_key, p.kind, p.parent, p.epoch, p.started_at, p.ended_at, p.outcome,
        s.step_key IS NOT NULL AS effect
      FROM holdfast.run_spans p
      LEFT JOIN holdfast.run_steps s ON s.run_id = p.run_id AND s.step_key = p.span_key
      WHERE p.run_id = ${runId} ORDER BY p.started_at, p.span_key LIMIT ${ROWS_MAX}`,
  )
  return found.map(({ span_key, kind, parent, epoch, started_at, ended_at, outcome, effect }) => ({
    key: span_key,
    kind,
    parent,
    epoch,
    start: started_at.toISOString(),
    end: ended_at?.toISOString() ?? null,
    outcome,
    effect,
  }))
}

/** What was open when its attempt ended has ended with it; of an effect nobody knows how. */
function settled({ effect, ...span }: OpenSpan, attempts: readonly Attempt[]): Span {
  const attempt = attempts.find(({ epoch }) => epoch === span.epoch)
  if (span.outcome !== null || !attempt?.endedAt) return span
  return { ...span, end: attempt.endedAt, outcome: effect ? 'in_doubt' : 'cancelled' }
}

/** The times in the queue: before the first attempt, and after each that was given back. */
function waits(createdAt: string, attempts: readonly Attempt[], queued: boolean): Span[] {
  const begins = [
    createdAt,
    ...attempts.map(({ outcome, endedAt }) =>
      outcome === 'handed_back' || outcome === 'retried' ? endedAt : null,
    ),
  ]
  return begins.flatMap((start, at): Span[] => {
    const next = attempts[at]
    if (start === null || (!next && !queued)) return []
    const end = next?.startedAt ?? null
    const outcome = end === null ? null : 'done'
    return [{ key: 'queue', kind: 'queue', parent: null, epoch: at, start, end, outcome }]
  })
}

/** From the moment a lost owner's lease passed until somebody else held the run. */
function leaseGaps(
  attempts: readonly Attempt[],
  lapsed: { at: string; ms: number } | null,
): TimelineView['leaseGaps'] {
  const gaps = attempts.slice(1).flatMap((next, at) => {
    const lost = attempts[at]
    if (lost?.outcome !== 'lost' || lost.endedAt === null) return []
    const ms = Math.max(0, Date.parse(next.startedAt) - Date.parse(lost.endedAt))
    return [{ afterEpoch: lost.epoch, from: lost.endedAt, to: next.startedAt, ms }]
  })
  const last = attempts.at(-1)
  if (!lapsed || !last) return gaps
  return [...gaps, { afterEpoch: last.epoch, from: lapsed.at, to: null, ms: lapsed.ms }]
}

async function readStaleWrites(db: Db, runId: string): Promise<TimelineView['staleWrites']> {
  const found = await rows(
    db,
    sql<{
      operation: string
      epoch: number
      current_epoch: number
      runner: string
      late_ms: number | null
      refused_at: Date
    }>`
      SELECT operation, epoch, current_epoch, runner, late_ms, refused_at FROM holdfast.stale_writes
      WHERE run_id = ${runId} ORDER BY id LIMIT ${ROWS_MAX}`,
  )
  return found.map((write) => ({
    operation: write.operation,
    epoch: write.epoch,
    currentEpoch: write.current_epoch,
    runner: write.runner,
    lateMs: write.late_ms,
    refusedAt: write.refused_at.toISOString(),
  }))
}

function compare(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0
}
