import type { AttemptReason } from '@holdfast/protocol'
import { asError, HoldfastError } from '@holdfast/std'
import { type RawBuilder, sql } from 'kysely'
import { type Lease, mintLease } from './lease.ts'
import { rows, type Store } from './store.ts'

/** A run that this runner has just been given, with what it needs to begin. */
export type Claimed = {
  readonly lease: Lease
  readonly agent: string
  readonly userId: string
  readonly turn: number
  readonly reason: AttemptReason
  readonly attemptsUsed: number
  readonly maxAttempts: number
  readonly lastSequence: number
  /** A duration, not an instant: only the database's clock judges. */
  readonly deadlineLeftMs: number
  /** `performance.now()` before the claim was sent: the lease's limit counts from here. */
  readonly sentAtMs: number
}

type Request = {
  readonly owner: string
  readonly agents: readonly string[]
  readonly leaseMs: number
  /** Free slots of the runner. */
  readonly limit: number
  /** A row that cannot be claimed keeps no other from it; it is told here, and looked at again the next time. */
  readonly onFailed?: (error: Error) => void
}

type ClaimedRow = {
  id: string
  conversation_id: string
  tenant_id: string
  user_id: string
  agent: string
  turn: number
  execution_epoch: number
  attempts_used: number
  max_attempts: number
  last_sequence: number
  reason: AttemptReason
  deadline_left_ms: number
}

/**
 * Claims queued runs that are due, oldest first for each agent.
 * Guarantees: each row is given to one claimer, under a new epoch; state, due time and cancel mark stand
 * in the UPDATE itself. Locks: the picked run rows, SKIP LOCKED, so claimers never wait for each other.
 * Index: runs_claimable; what is parked ('infinity') or backs off stands at its far end and costs nothing, because the clock
 * is asked in a subquery: a volatile function is no condition for an index.
 */
export async function claimQueued(store: Store, request: Request): Promise<Claimed[]> {
  const due = sql<{ id: string }>`
    SELECT id FROM holdfast.runs WHERE state = 'queued' AND agent = ANY (${request.agents}::text[])
      AND available_at <= clock_timestamp() ORDER BY random() LIMIT ${request.limit}`
  return await allOrEach(store, request, due, (only) => claimSome(store, request, only))
}

async function claimSome(store: Store, request: Request, only: string | null): Promise<Claimed[]> {
  const sentAtMs = performance.now()
  const claimed = await rows(
    store,
    sql<ClaimedRow>`
      WITH claimed AS (
        UPDATE holdfast.runs r
        SET state = 'running', execution_epoch = execution_epoch + 1, owner = ${request.owner}::uuid,
            lease_until = clock_timestamp() + ${request.leaseMs} * interval '1 ms',
            attempts_used = attempts_used + 1,
            started_at = coalesce(started_at, clock_timestamp()),
            deadline_at = coalesce(deadline_at, clock_timestamp() + deadline_ms * interval '1 ms')
        WHERE id = ANY (ARRAY(
            SELECT due.id FROM unnest(${request.agents}::text[]) AS mine (agent)
            CROSS JOIN LATERAL (
              SELECT id FROM holdfast.runs q
              WHERE q.state = 'queued' AND q.agent = mine.agent
                AND q.available_at <= (SELECT clock_timestamp())
                AND q.cancel_requested_at IS NULL AND q.attempts_used < q.max_attempts AND ${isOnly('q', only)}
                AND (q.queue_until IS NULL OR q.queue_until > clock_timestamp())
              ORDER BY q.available_at, q.id LIMIT ${request.limit}
              FOR NO KEY UPDATE SKIP LOCKED) due
            LIMIT ${request.limit}))
          -- By primary key: a planner that knows of few queued runs would rather look at all there are.
          AND state COLLATE "C" = 'queued' AND cancel_requested_at IS NULL AND available_at <= clock_timestamp()
        RETURNING id, conversation_id, tenant_id, user_id, agent, turn, execution_epoch, attempts_used,
          max_attempts, last_sequence, next_reason AS reason,
          extract(epoch FROM deadline_at - clock_timestamp()) * 1000 AS deadline_left_ms),
      attempt AS (
        INSERT INTO holdfast.run_attempts (run_id, epoch, tenant_id, runner, reason, base_sequence)
        SELECT id, execution_epoch, tenant_id, ${request.owner}::uuid, reason, last_sequence FROM claimed)
      SELECT * FROM claimed`,
  )
  return claimed.map((run) => asClaimed(run, request.owner, sentAtMs))
}

/**
 * Takes over running runs whose lease has passed and which may be tried again.
 * Guarantees: expiry and epoch are judged in the UPDATE, so a renewal that came first wins; the lost
 * attempt is marked in the same transaction, as ended when its lease did. Locks: the picked rows, SKIP LOCKED. Index: runs_running,
 * which is as long as there are live runs; the lease itself is in no index.
 */
export async function takeOver(store: Store, request: Request): Promise<Claimed[]> {
  return await allOrEach(store, request, expired(request.limit), (only) =>
    takeSome(store, request, only),
  )
}

async function takeSome(store: Store, request: Request, only: string | null): Promise<Claimed[]> {
  const sentAtMs = performance.now()
  const taken = await rows(
    store,
    sql<ClaimedRow>`
      WITH taken AS (
        UPDATE holdfast.runs r
        SET execution_epoch = execution_epoch + 1, owner = ${request.owner}::uuid,
            lease_until = clock_timestamp() + ${request.leaseMs} * interval '1 ms',
            attempts_used = attempts_used + 1
        WHERE id = ANY (ARRAY(
            SELECT id FROM holdfast.runs x
            WHERE x.state = 'running' AND (x.lease_until IS NULL OR x.lease_until <= clock_timestamp())
              AND x.agent = ANY (${request.agents}::text[]) AND x.attempts_used < x.max_attempts
              AND x.on_lost = 'restart' AND x.cancel_requested_at IS NULL
              AND x.deadline_at > clock_timestamp() AND ${isOnly('x', only)}
            LIMIT ${request.limit} FOR NO KEY UPDATE SKIP LOCKED))
          AND state = 'running' AND (lease_until IS NULL OR lease_until <= clock_timestamp())
          AND cancel_requested_at IS NULL
        RETURNING id, conversation_id, tenant_id, user_id, agent, turn, execution_epoch, attempts_used,
          max_attempts, last_sequence, 'takeover' AS reason,
          extract(epoch FROM deadline_at - clock_timestamp()) * 1000 AS deadline_left_ms),
      lost AS (
        UPDATE holdfast.run_attempts a SET outcome = 'lost',
          ended_at = greatest(a.started_at, least(before.lease_until, clock_timestamp()))
        FROM taken JOIN holdfast.runs before ON before.id = taken.id
        WHERE a.run_id = taken.id AND a.epoch < taken.execution_epoch AND a.ended_at IS NULL),
      attempt AS (
        INSERT INTO holdfast.run_attempts (run_id, epoch, tenant_id, runner, reason, base_sequence)
        SELECT id, execution_epoch, tenant_id, ${request.owner}::uuid, reason, last_sequence FROM taken)
      SELECT * FROM taken`,
  )
  return taken.map((run) => asClaimed(run, request.owner, sentAtMs))
}

/** Why a run that nobody may execute any more has to be ended. */
export type EndingCause = 'cancel' | 'deadline_exceeded' | 'attempts_exhausted' | 'runner_lost'

/**
 * Claims running runs whose lease has passed and which must not be executed again, in order to end them:
 * a new epoch fences the lost owner, no attempt is spent. Locks and index as in `takeOver`; any runner
 * may do it, whatever its agents.
 */
export async function claimForEnding(
  store: Store,
  request: Omit<Request, 'agents'>,
): Promise<ToEnd[]> {
  return await allOrEach(store, request, expired(request.limit), (only) =>
    takeSomeForEnding(store, request, only),
  )
}

type ToEnd = Claimed & { readonly cause: EndingCause }

async function takeSomeForEnding(
  store: Store,
  request: Omit<Request, 'agents'>,
  only: string | null,
): Promise<ToEnd[]> {
  const sentAtMs = performance.now()
  const taken = await rows(
    store,
    sql<ClaimedRow & { cause: EndingCause }>`
      WITH taken AS (
        UPDATE holdfast.runs r
        SET execution_epoch = execution_epoch + 1, owner = ${request.owner}::uuid,
            lease_until = clock_timestamp() + ${request.leaseMs} * interval '1 ms'
        WHERE id = ANY (ARRAY(
            SELECT id FROM holdfast.runs x
            WHERE x.state = 'running' AND (x.lease_until IS NULL OR x.lease_until <= clock_timestamp())
              AND (x.cancel_requested_at IS NOT NULL OR x.deadline_at <= clock_timestamp()
                   OR x.deadline_at IS NULL OR x.attempts_used >= x.max_attempts OR x.on_lost = 'fail')
              AND ${isOnly('x', only)}
            LIMIT ${request.limit} FOR NO KEY UPDATE SKIP LOCKED))
          AND state = 'running' AND (lease_until IS NULL OR lease_until <= clock_timestamp())
        RETURNING id, conversation_id, tenant_id, user_id, agent, turn, execution_epoch, attempts_used,
          max_attempts, last_sequence, 'takeover' AS reason,
          coalesce(extract(epoch FROM deadline_at - clock_timestamp()) * 1000, 0) AS deadline_left_ms,
          CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancel'
               WHEN deadline_at IS NULL OR deadline_at <= clock_timestamp() THEN 'deadline_exceeded'
               WHEN on_lost = 'fail' THEN 'runner_lost'
               ELSE 'attempts_exhausted' END AS cause),
      lost AS (
        UPDATE holdfast.run_attempts a SET outcome = 'lost',
          ended_at = greatest(a.started_at, least(before.lease_until, clock_timestamp()))
        FROM taken JOIN holdfast.runs before ON before.id = taken.id
        WHERE a.run_id = taken.id AND a.epoch < taken.execution_epoch AND a.ended_at IS NULL),
      attempt AS (
        INSERT INTO holdfast.run_attempts (run_id, epoch, tenant_id, runner, reason, base_sequence)
        SELECT id, execution_epoch, tenant_id, ${request.owner}::uuid, 'ending', last_sequence FROM taken)
      SELECT * FROM taken`,
  )
  return taken.map((run) => ({ ...asClaimed(run, request.owner, sentAtMs), cause: run.cause }))
}

/**
 * All rows in one statement; when one of them makes it fail, each of them by itself. They are tried in no order, so
 * that those which fail again and again cannot stand in the way of the others.
 */
async function allOrEach<T>(
  store: Store,
  { onFailed }: Pick<Request, 'onFailed'>,
  candidates: RawBuilder<{ id: string }>,
  claimSome: (only: string | null) => Promise<T[]>,
): Promise<T[]> {
  try {
    return await claimSome(null)
  } catch (error) {
    // The database does not answer: that is nobody's row.
    if (error instanceof HoldfastError) throw error
  }
  const claimed: T[] = []
  for (const { id } of await rows(store, candidates)) {
    try {
      claimed.push(...(await claimSome(id)))
    } catch (error) {
      onFailed?.(asError(error))
    }
  }
  return claimed
}

function expired(limit: number): RawBuilder<{ id: string }> {
  return sql<{ id: string }>`
    SELECT id FROM holdfast.runs
    WHERE state = 'running' AND (lease_until IS NULL OR lease_until <= clock_timestamp())
    ORDER BY random() LIMIT ${limit}`
}

function isOnly(table: string, only: string | null): RawBuilder<boolean> {
  return only === null ? sql`true` : sql`${sql.raw(table)}.id = ${only}`
}

function asClaimed(run: ClaimedRow, owner: string, sentAtMs: number): Claimed {
  return {
    lease: mintLease({
      runId: run.id,
      conversationId: run.conversation_id,
      tenantId: run.tenant_id,
      epoch: run.execution_epoch,
      owner,
    }),
    agent: run.agent,
    userId: run.user_id,
    turn: run.turn,
    reason: run.reason,
    attemptsUsed: run.attempts_used,
    maxAttempts: run.max_attempts,
    lastSequence: run.last_sequence,
    deadlineLeftMs: Number(run.deadline_left_ms),
    sentAtMs,
  }
}
