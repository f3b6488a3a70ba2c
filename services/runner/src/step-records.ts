import {
  beginStep,
  endStep,
  readStep,
  type StepBegun,
  type StepEnd,
  withdrawStep,
} from '@holdfast/store'
import type { Logger } from 'pino'
import { AgentFailure } from './agents/agent.ts'
import type { StepPolicy } from './agents/step.ts'
import type { Attempt } from './attempt.ts'
import { type FencedWriteDeps, writeFenced } from './fenced-write.ts'

const KEY_CHARS_MAX = 200

/** What an attempt writes down about its steps. Everything is durable when a promise resolves. */
export type StepRecords = {
  readonly log: Logger
  begin(
    key: string,
    step: { kind?: string | undefined; policy: StepPolicy; parent?: string | undefined },
    repeat: boolean,
  ): Promise<Exclude<StepBegun, { kind: 'fenced' }>>
  end(end: StepEnd): Promise<void>
  withdraw(key: string): Promise<void>
}

export function openStepRecords(deps: FencedWriteDeps, attempt: Attempt): StepRecords {
  const { store, log } = deps
  const { lease } = attempt.claimed
  return {
    log,
    async begin(key, { kind = 'step', policy, parent = null }, repeat) {
      const idempotencyKey = idempotencyKeyOf(lease.runId, key)
      const intent = { key, kind, policy, parent, idempotencyKey, repeat }
      return await writeFenced(deps, attempt, {
        operation: 'step_intent',
        send: () => beginStep(store, lease, intent),
        landed: async () => (await readStep(store, lease, key))?.intentEpoch === lease.epoch,
      })
    },
    async end(end) {
      const landed = async () =>
        (await readStep(store, lease, end.key))?.outcomeEpoch === lease.epoch
      await writeFenced(deps, attempt, {
        operation: 'step_outcome',
        send: () => endStep(store, lease, end),
        landed,
      })
    },
    async withdraw(key) {
      await writeFenced(deps, attempt, {
        operation: 'step_intent',
        send: () => withdrawStep(store, lease, key),
      })
    },
  }
}

/** By what the outside knows an effect: the same in every attempt, so nothing of the attempt is part of it. */
export function idempotencyKeyOf(runId: string, key: string): string {
  const name = key.isWellFormed() ? encodeURIComponent(key) : ''
  if (name.length === 0 || name.length > KEY_CHARS_MAX) {
    throw new AgentFailure(
      'agent_error',
      `a step's key has 1 to ${KEY_CHARS_MAX} characters, encoded as in a URL: ${key.slice(0, 50)}`,
    )
  }
  return `${runId}:${name}`
}
