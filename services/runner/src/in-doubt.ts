import { recordLostCalls } from '@holdfast/store'
import type { Agent } from './agents/agent.ts'
import type { Attempt } from './attempt.ts'
import { type FencedWriteDeps, writeFenced } from './fenced-write.ts'

/** An earlier attempt left an effect that must not be repeated and that nobody can be asked about. */
export function isInDoubt(attempt: Attempt, agent: Agent): boolean {
  return (
    callsInDoubt(attempt, agent) ||
    attempt.input.stepsInDoubt.some(({ policy }) => policy === 'stop')
  )
}

/**
 * Names the tool calls that a lost attempt had begun elsewhere, so that whoever asks for the run is told of them. That
 * they cannot be named keeps no run from ending.
 */
export async function nameLostCalls(
  deps: FencedWriteDeps,
  attempt: Attempt,
  agent: Agent | undefined,
): Promise<void> {
  if (!agent || !callsInDoubt(attempt, agent)) return
  try {
    await writeFenced(deps, attempt, {
      operation: 'step_intent',
      send: () => recordLostCalls(deps.store, attempt.claimed.lease),
    })
  } catch (error) {
    deps.log.warn({ err: error }, 'the calls of a lost attempt could not be named')
  }
}

function callsInDoubt({ claimed, input }: Attempt, agent: Agent): boolean {
  if (!agent.callsElsewhere || claimed.reason === 'first') return false
  return input.toolCallStarted && input.effects === 'unknown'
}
