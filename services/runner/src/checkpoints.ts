import { LIMITS } from '@holdfast/protocol'
import { saveCheckpoint } from '@holdfast/store'
import { type Agent, AgentFailure } from './agents/agent.ts'
import type { Checkpoint } from './agents/step.ts'
import type { Attempt } from './attempt.ts'
import { type FencedWriteDeps, writeFenced } from './fenced-write.ts'

/** Saves `data` together with the length of the log, once everything emitted before is durable. */
export async function checkpoint(
  deps: FencedWriteDeps,
  attempt: Attempt,
  data: unknown,
): Promise<void> {
  attempt.signal.throwIfAborted()
  const json = JSON.stringify(data)
  if (json === undefined) throw new AgentFailure('agent_error', 'a checkpoint must be JSON')
  if (Buffer.byteLength(json) > LIMITS.checkpointBytesMax) {
    throw new AgentFailure('limit_exceeded', 'the checkpoint is larger than 1 MiB')
  }
  await attempt.log.settled()
  const { sequence } = attempt.log
  const { store } = deps
  await writeFenced(deps, attempt, {
    operation: 'checkpoint',
    send: () => saveCheckpoint(store, attempt.claimed.lease, sequence, json),
  })
}

/** The checkpoint that an attempt begins with; current when the agent goes on from it and nothing was said since. */
export function savedCheckpoint({ input }: Attempt, agent: Agent): Checkpoint | null {
  const saved = input.checkpoint
  if (!saved) return null
  return { ...saved, current: agent.resumes === true && saved.sequence === input.sequence }
}
