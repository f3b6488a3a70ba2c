import { sql } from 'kysely'
import { FENCED, type Fenced, holds, type Lease } from './lease.ts'
import { type Db, row, rows, type Store } from './store.ts'

export type StepPolicy = 'retry' | 'ask' | 'stop'
export type StepOutcome = 'done' | 'failed' | 'compensated'

export type StepIntent = {
  readonly key: string
  readonly kind: string
  readonly idempotencyKey: string
  readonly policy: StepPolicy
  readonly parent: string | null
  /** Go on although an earlier attempt's effect is in doubt: by policy, or because the outside was asked. */
  readonly repeat: boolean
}

export type StepBegun =
  /** The intent is durable under this epoch; now, and not before, the effect may begin. `first`: nobody meant it before. */
  | { readonly kind: 'begun'; readonly idempotencyKey: string; readonly first: boolean }
  /** It has an outcome. `result` is JSON text; `null`: there was none. */
  | { readonly kind: 'recorded'; readonly outcome: StepOutcome; readonly result: string | null }
  /** An earlier attempt meant to do it, and nobody knows whether it did. Nothing was written. */
  | { readonly kind: 'in_doubt'; readonly idempotencyKey: string }
  | Fenced

/**
 * Records what is about to be done outside, unless it was done already or may have been. May be sent again: under one
 * epoch it says the same. Guarantees: an intent only under a live lease, and none over an outcome or, without `repeat`,
 * over the open intent of an earlier epoch. Locks only the run. Index: primary keys.
 */
export async function beginStep(store: Store, lease: Lease, step: StepIntent): Promise<StepBegun> {
  const found = await row(
    store,
    sql<{
      begun_key: string | null
      idempotency_key: string | null
      outcome: StepOutcome | null
      result: string | null
    }>`
      WITH fence AS (
        SELECT r.id, r.tenant_id FROM holdfast.runs r WHERE ${holds(lease)} FOR NO KEY UPDATE),
      known AS (
        SELECT s.idempotency_key, s.outcome, s.result::text AS result,
          s.outcome IS NOT NULL OR (s.intent_epoch < ${lease.epoch}::int AND NOT ${step.repeat}::boolean) AS settled
        FROM holdfast.run_steps s JOIN fence ON fence.id = s.run_id WHERE s.step_key = ${step.key}),
      intent AS (
        INSERT INTO holdfast.run_steps AS s
          (run_id, step_key, tenant_id, kind, idempotency_key, policy, intent_epoch)
        SELECT id, ${step.key}, tenant_id, ${step.kind}, ${step.idempotencyKey}, ${step.policy}, ${lease.epoch}::int
        FROM fence WHERE NOT EXISTS (SELECT FROM known WHERE settled)
        ON CONFLICT (run_id, step_key) DO UPDATE
          SET intent_epoch = excluded.intent_epoch, kind = excluded.kind, policy = excluded.policy
          WHERE s.outcome IS NULL
        RETURNING s.idempotency_key),
      span AS (
        INSERT INTO holdfast.run_spans (run_id, epoch, span_key, tenant_id, kind, parent, started_at)
        SELECT id, ${lease.epoch}::int, ${step.key}, tenant_id, ${step.kind}, ${step.parent}::text, clock_timestamp()
        FROM fence, intent ON CONFLICT DO NOTHING)
      SELECT intent.idempotency_key AS begun_key, known.idempotency_key, known.outcome, known.result
      FROM fence LEFT JOIN known ON true LEFT JOIN intent ON true`,
  )
  if (!found) return FENCED
  if (found.begun_key !== null) {
    const first = found.idempotency_key === null
    return { kind: 'begun', idempotencyKey: found.begun_key, first }
  }
  if (found.outcome) return { kind: 'recorded', outcome: found.outcome, result: found.result }
  return { kind: 'in_doubt', idempotencyKey: found.idempotency_key ?? step.idempotencyKey }
}

export type StepEnd = {
  readonly key: string
  readonly outcome: 'done' | 'failed'
  /** JSON text: what was done gave it, or why it failed. */
  readonly result: string | null
  /** The step whose effect this one has undone. */
  readonly compensates?: string | undefined
}

export type StepRecorded =
  | { readonly kind: 'recorded' }
  /** It has an outcome already: this one, if its reply was lost. Nothing was written. */
  | { readonly kind: 'settled'; readonly epoch: number }
  | Fenced

/**
 * Records what became of a step, and with it that another one was undone. Guarantees: only under a live lease, and
 * never over an outcome. Locks only the run. Index: primary keys.
 */
export async function endStep(store: Store, lease: Lease, end: StepEnd): Promise<StepRecorded> {
  const found = await row(
    store,
    sql<{ written: boolean; outcome_epoch: number | null }>`
      WITH fence AS (
        SELECT r.id, r.tenant_id FROM holdfast.runs r WHERE ${holds(lease)} FOR NO KEY UPDATE),
      ended AS (
        UPDATE holdfast.run_steps s
        SET outcome = ${end.outcome}, result = ${end.result}::json, outcome_epoch = ${lease.epoch}::int,
            outcome_at = clock_timestamp()
        FROM fence WHERE s.run_id = fence.id AND s.step_key = ${end.key} AND s.outcome IS NULL
        RETURNING s.run_id, s.kind, s.tenant_id),
      undone AS (
        UPDATE holdfast.run_steps s SET outcome = 'compensated', outcome_epoch = ${lease.epoch}::int
        FROM ended WHERE s.run_id = ended.run_id AND s.step_key = ${end.compensates ?? null}::text
          AND s.outcome = 'done'),
      span AS (
        INSERT INTO holdfast.run_spans AS p
          (run_id, epoch, span_key, tenant_id, kind, started_at, ended_at, outcome)
        SELECT run_id, ${lease.epoch}::int, ${end.key}, tenant_id, kind, clock_timestamp(), clock_timestamp(),
          ${end.outcome} FROM ended
        ON CONFLICT (run_id, epoch, span_key) DO UPDATE
          SET ended_at = excluded.ended_at, outcome = excluded.outcome)
      SELECT EXISTS (SELECT FROM ended) AS written,
        (SELECT s.outcome_epoch FROM holdfast.run_steps s
         WHERE s.run_id = fence.id AND s.step_key = ${end.key}) AS outcome_epoch
      FROM fence`,
  )
  if (!found) return FENCED
  if (found.written) return { kind: 'recorded' }
  // What somebody wrote while this statement waited for the run is not in its snapshot.
  const epoch = found.outcome_epoch ?? (await readStep(store, lease, end.key))?.outcomeEpoch
  return { kind: 'settled', epoch: epoch ?? 0 }
}

/**
 * Takes back an intent whose effect has certainly not begun, so that it is not in doubt. Guarantees: only under a live
 * lease, and only an open intent of its own epoch. Locks only the run. Index: primary keys.
 */
export async function withdrawStep(
  store: Store,
  lease: Lease,
  key: string,
): Promise<{ readonly kind: 'withdrawn' } | Fenced> {
  const found = await row(
    store,
    sql<{ held: boolean }>`
      WITH fence AS (SELECT r.id FROM holdfast.runs r WHERE ${holds(lease)} FOR NO KEY UPDATE),
      withdrawn AS (
        DELETE FROM holdfast.run_steps s USING fence
        WHERE s.run_id = fence.id AND s.step_key = ${key} AND s.outcome IS NULL AND s.intent_epoch = ${lease.epoch}
        RETURNING s.run_id),
      span AS (
        UPDATE holdfast.run_spans p SET ended_at = clock_timestamp(), outcome = 'cancelled'
        FROM withdrawn WHERE p.run_id = withdrawn.run_id AND p.epoch = ${lease.epoch} AND p.span_key = ${key})
      SELECT true AS held FROM fence`,
  )
  return found ? { kind: 'withdrawn' } : FENCED
}

export type StepRecord = { readonly intentEpoch: number; readonly outcomeEpoch: number | null }

/** What is known of a step now; decides whether a write whose reply was lost has landed. Takes no locks. */
export async function readStep(
  store: Store,
  { runId }: Pick<Lease, 'runId'>,
  key: string,
): Promise<StepRecord | null> {
  const found = await row(
    store,
    sql<{ intent_epoch: number; outcome_epoch: number | null }>`
      SELECT intent_epoch, outcome_epoch FROM holdfast.run_steps
      WHERE run_id = ${runId} AND step_key = ${key}`,
  )
  return found && { intentEpoch: found.intent_epoch, outcomeEpoch: found.outcome_epoch }
}

/** An effect that an earlier attempt meant to have. */
export type StepInDoubt = { readonly key: string; readonly policy: StepPolicy }

/** The steps that earlier attempts left without an outcome, oldest first. */
export async function readStepsInDoubt(db: Db, lease: Lease): Promise<StepInDoubt[]> {
  return await rows(
    db,
    sql<StepInDoubt>`
      SELECT step_key AS key, policy FROM holdfast.run_steps
      WHERE run_id = ${lease.runId} AND outcome IS NULL AND intent_epoch < ${lease.epoch}
      ORDER BY intent_at, step_key`,
  )
}

/**
 * Records the tool calls of lost attempts as steps that nobody knows the outcome of: those that got no result, or all
 * when each got one, since the call after them may have begun unseen. The upstream was given the run's id as
 * idempotency key. May be sent again. Locks only the run. Index: primary key of run_events.
 */
export async function recordLostCalls(
  store: Store,
  lease: Lease,
): Promise<{ readonly kind: 'recorded' } | Fenced> {
  const found = await row(
    store,
    sql<{ held: boolean }>`
      WITH fence AS (
        SELECT r.id, r.tenant_id FROM holdfast.runs r WHERE ${holds(lease)} FOR NO KEY UPDATE),
      calls AS (
        SELECT e.epoch, e.created_at, e.payload ->> 'toolCallId' AS call_id,
          e.payload ->> 'toolCallName' AS name,
          NOT EXISTS (
            SELECT FROM holdfast.run_events x
            WHERE x.run_id = e.run_id AND x.type = 'TOOL_CALL_RESULT' AND x.epoch = e.epoch
              AND x.payload ->> 'toolCallId' = e.payload ->> 'toolCallId') AS unanswered
        FROM holdfast.run_events e JOIN fence ON fence.id = e.run_id
        WHERE e.type = 'TOOL_CALL_START' AND e.epoch < ${lease.epoch}),
      doubtful AS (SELECT calls.*, bool_or(unanswered) OVER () AS any_unanswered FROM calls),
      recorded AS (
        INSERT INTO holdfast.run_steps
          (run_id, step_key, tenant_id, kind, idempotency_key, policy, intent_epoch, intent_at)
        SELECT fence.id, left(d.name, 100) || ' ' || left(d.call_id, 200), fence.tenant_id, 'tool', fence.id::text,
          'stop', d.epoch, d.created_at
        FROM fence, doubtful d WHERE d.unanswered OR NOT d.any_unanswered
        ON CONFLICT DO NOTHING)
      SELECT true AS held FROM fence`,
  )
  return found ? { kind: 'recorded' } : FENCED
}
