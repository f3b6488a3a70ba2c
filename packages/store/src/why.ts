import {
  isTerminal,
  type RunErrorCode,
  type RunOutcome,
  type RunState,
  type WhyReason,
} from '@holdfast/protocol'
import { sql } from 'kysely'
import { visibleTo } from './event-log.ts'
import type { Principal } from './principal.ts'
import { type Db, inSnapshot, row, rows, type Store } from './store.ts'

/** A runner says every five seconds, or three times a lease, that it is there. */
const SILENT_SECONDS = 15

type Facts = {
  agent: string
  state: RunState
  outcome: RunOutcome | null
  error_code: RunErrorCode | null
  finished_at: Date | null
  execution_epoch: number
  owner: string | null
  lease_until: Date | null
  held: boolean
  parked: boolean
  backing_off: boolean
  due_at: Date | null
  cancel_requested_at: Date | null
  ending: Extract<WhyReason, { code: 'to_be_ended' }>['cause'] | null
}

/**
 * Why a run is not further, the most important reason first. `null`: unknown, foreign or deleted. Read in one
 * snapshot; takes no locks. Index: primary keys, runs_unfinished; the list of runners is short.
 */
export async function whyNotFurther(
  store: Store,
  principal: Principal,
  runId: string,
): Promise<{ readonly state: RunState; readonly reasons: readonly WhyReason[] } | null> {
  return await inSnapshot(store, async (db) => {
    const run = await readFacts(db, principal, runId)
    if (!run) return null
    const { state } = run
    if (isTerminal(state))
      return { state, reasons: [...ended(run), ...(await openSteps(db, runId))] }
    const reasons = state === 'queued' ? await waiting(db, runId, run) : await running(db, run)
    return { state, reasons: [...reasons, ...(await openSteps(db, runId))] }
  })
}

// What the claim, the takeover and the sweep ask is asked here in the same words.
async function readFacts(db: Db, principal: Principal, runId: string): Promise<Facts | null> {
  return await row(
    db,
    sql<Facts>`
      SELECT r.agent, r.state, r.outcome, r.error_code, r.finished_at, r.execution_epoch, r.owner, r.lease_until,
        coalesce(r.lease_until > clock_timestamp(), false) AS held, r.available_at = 'infinity' AS parked,
        r.available_at > clock_timestamp() AS backing_off, r.cancel_requested_at,
        CASE WHEN r.available_at < 'infinity' THEN r.available_at END AS due_at,
        CASE WHEN r.cancel_requested_at IS NOT NULL THEN 'cancel'
             WHEN r.deadline_at <= clock_timestamp() THEN 'deadline_exceeded'
             WHEN r.state = 'queued' AND r.queue_until <= clock_timestamp() THEN 'queue_timeout'
             WHEN r.state = 'running' AND r.on_lost = 'fail' THEN 'runner_lost'
             WHEN r.attempts_used >= r.max_attempts THEN 'attempts_exhausted' END AS ending
      FROM holdfast.runs r
      JOIN holdfast.conversations c ON c.id = r.conversation_id AND c.deleted_at IS NULL
      WHERE r.id = ${runId} AND ${visibleTo(principal)}`,
  )
}

function ended({ state, finished_at: at, outcome, error_code: errorCode }: Facts): WhyReason[] {
  if (!at || !outcome) return []
  return [{ code: 'ended', state, at: at.toISOString(), outcome, errorCode }]
}

async function waiting(db: Db, runId: string, run: Facts): Promise<WhyReason[]> {
  if (run.ending) return [{ code: 'to_be_ended', cause: run.ending }]
  if (run.parked) return [await parked(db, runId)]
  if (run.backing_off && run.due_at)
    return [{ code: 'backing_off', until: run.due_at.toISOString() }]
  const unavailable = await unavailableRunners(db, run.agent)
  if (unavailable) return [unavailable]
  return run.due_at ? [{ code: 'due', since: run.due_at.toISOString() }] : []
}

async function parked(db: Db, runId: string): Promise<WhyReason> {
  const before = await rows(
    db,
    sql<{ id: string; turn: number }>`
      SELECT b.id, b.turn FROM holdfast.runs r
      JOIN holdfast.runs b ON b.conversation_id = r.conversation_id AND b.turn < r.turn
        AND b.state IN ('queued', 'running')
      WHERE r.id = ${runId} ORDER BY b.turn`,
  )
  const [active] = before
  const behind = before.at(-1)
  if (!active || !behind) return { code: 'unparking' }
  return {
    code: 'parked',
    behindRunId: behind.id,
    behindTurn: behind.turn,
    activeRunId: active.id,
  }
}

async function running(db: Db, run: Facts): Promise<WhyReason[]> {
  const { owner, lease_until: until } = run
  if (!run.held || !owner || !until) {
    if (run.ending) return [{ code: 'to_be_ended', cause: run.ending }]
    const unavailable = await unavailableRunners(db, run.agent)
    const passed = {
      code: 'lease_passed',
      runner: owner,
      at: until?.toISOString() ?? null,
    } as const
    return unavailable ? [passed, unavailable] : [passed]
  }
  const cancel: WhyReason[] = run.cancel_requested_at
    ? [{ code: 'cancel_pending', since: run.cancel_requested_at.toISOString() }]
    : []
  const attempt = run.execution_epoch
  const executing = {
    code: 'executing',
    runner: owner,
    leaseUntil: until.toISOString(),
    attempt,
  } as const
  return [...cancel, ...(await silentOwner(db, owner)), executing]
}

async function silentOwner(db: Db, owner: string): Promise<WhyReason[]> {
  const seen = await row(
    db,
    sql<{ last_seen: Date; silent: boolean }>`
      SELECT last_seen, last_seen < clock_timestamp() - ${SILENT_SECONDS} * interval '1 s' AS silent
      FROM holdfast.runners WHERE boot_id = ${owner}`,
  )
  if (seen && !seen.silent) return []
  const lastSeen = seen?.last_seen.toISOString() ?? null
  return [{ code: 'runner_silent', runner: owner, lastSeen }]
}

/** Why no runner takes a run of this agent; `null` when one can. */
async function unavailableRunners(db: Db, agent: string): Promise<WhyReason | null> {
  const counts = await row(
    db,
    sql<{ able: number; full: number; draining: number; silent: number }>`
      SELECT count(*) FILTER (WHERE how = 'able') AS able, count(*) FILTER (WHERE how = 'full') AS full,
        count(*) FILTER (WHERE how = 'draining') AS draining, count(*) FILTER (WHERE how = 'silent') AS silent
      FROM (SELECT CASE WHEN last_seen < clock_timestamp() - ${SILENT_SECONDS} * interval '1 s' THEN 'silent'
                        WHEN draining THEN 'draining' WHEN running >= capacity THEN 'full' ELSE 'able' END AS how
            FROM holdfast.runners WHERE ${agent} = ANY (agents)) AS with_agent`,
  )
  if (!counts || counts.able > 0) return null
  const { full, draining, silent } = counts
  if (full + draining + silent === 0) return { code: 'no_runner', agent }
  return { code: 'runners_unavailable', agent, full, draining, silent }
}

/** Steps that were begun and whose outcome is not recorded: by the attempt that runs, or by one that was lost. */
async function openSteps(db: Db, runId: string): Promise<WhyReason[]> {
  const open = await rows(
    db,
    sql<{ step_key: string; intent_at: Date; pending: boolean }>`
      SELECT s.step_key, s.intent_at, s.intent_epoch = r.execution_epoch AND r.state = 'running' AS pending
      FROM holdfast.run_steps s JOIN holdfast.runs r ON r.id = s.run_id
      WHERE s.run_id = ${runId} AND s.outcome IS NULL ORDER BY s.intent_at LIMIT 20`,
  )
  return open.map(({ step_key: step, intent_at, pending }) => ({
    code: pending ? 'step_pending' : 'in_doubt',
    step,
    since: intent_at.toISOString(),
  }))
}
