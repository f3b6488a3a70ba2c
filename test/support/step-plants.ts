import { beginStep, endStep, type Lease, type Store, saveCheckpoint } from '@holdfast/store'

/** A step that is done, and a checkpoint behind it. */
export async function recordStep(store: Store, lease: Lease): Promise<void> {
  const step = { key: 'pay', kind: 'step', policy: 'stop', parent: null, repeat: false } as const
  await beginStep(store, lease, { ...step, idempotencyKey: `${lease.runId}:pay` })
  await endStep(store, lease, { key: 'pay', outcome: 'done', result: '1' })
  await saveCheckpoint(store, lease, 5, '{}')
}

/** [invariant, whose, what breaks it]: the records of steps, checkpoints and spans. */
export const STEP_PLANTS: readonly [invariant: string, of: 'ended' | 'stray', statement: string][] =
  [
    [
      'I16 the record of a step keeps to the epochs of its run',
      'ended',
      `UPDATE holdfast.run_steps SET intent_epoch = 9, outcome_epoch = 9 WHERE run_id = $1`,
    ],
    [
      'I16 the record of a step keeps to the epochs of its run',
      'stray',
      `INSERT INTO holdfast.run_steps (run_id, step_key, tenant_id, kind, idempotency_key, policy, intent_epoch)
     VALUES ($1::uuid, 'a', 'acme', 'step', $1::uuid::text || ':a', 'stop', 1)`,
    ],
    [
      'I16 one step of a run is one effect outside',
      'ended',
      `INSERT INTO holdfast.run_steps
       (run_id, step_key, tenant_id, kind, idempotency_key, policy, intent_epoch, outcome_epoch, outcome_at, outcome)
     SELECT run_id, 'again', tenant_id, kind, idempotency_key, policy, 1, 1, now(), 'done'
     FROM holdfast.run_steps WHERE run_id = $1`,
    ],
    [
      'I16 no run has succeeded with an effect in doubt that must not be repeated',
      'ended',
      `UPDATE holdfast.run_steps SET outcome = NULL, outcome_at = NULL, outcome_epoch = NULL WHERE run_id = $1`,
    ],
    [
      'I16 a step is known by the same key to every attempt',
      'ended',
      `UPDATE holdfast.run_steps SET idempotency_key = '1.' || idempotency_key WHERE run_id = $1`,
    ],
    [
      'I1 a checkpoint and a span keep to the epochs of their run',
      'ended',
      `UPDATE holdfast.run_checkpoints SET sequence = 99 WHERE run_id = $1`,
    ],
    [
      'I1 a checkpoint and a span keep to the epochs of their run',
      'ended',
      `UPDATE holdfast.run_spans SET epoch = 9 WHERE run_id = $1`,
    ],
    [
      'I20 what belongs to a run belongs to its tenant',
      'ended',
      `UPDATE holdfast.run_steps SET tenant_id = 'other' WHERE run_id = $1`,
    ],
  ]
