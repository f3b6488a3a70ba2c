import { LIMITS } from '@holdfast/protocol'
import type { StepBegun } from '@holdfast/store'
import { AgentFailure } from './agents/agent.ts'

const REASON_CHARS_MAX = 2000

/** A step's result as JSON text; `null`: it gave none. A failure says why it cannot be kept. */
export function serialised(key: string, value: unknown): string | null | AgentFailure {
  let json: string | undefined
  try {
    json = JSON.stringify(value)
  } catch (error) {
    return new AgentFailure('agent_error', `the result of step ${key} is not JSON`, {
      cause: error,
    })
  }
  if (json === undefined) return null
  const bytes = Buffer.byteLength(json)
  if (bytes <= LIMITS.stepBytesMax) return json
  return new AgentFailure(
    'limit_exceeded',
    `the result of step ${key} has ${bytes} bytes; at most ${LIMITS.stepBytesMax} can be kept`,
  )
}

/** What `serialised` gave, again: the first attempt is given the same as every later one. */
export function parsed<T>(json: string | null): T {
  return (json === null ? undefined : JSON.parse(json)) as T
}

/** Why a step failed, to be recorded. It stays on the server. */
export function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error)
  const code = error instanceof AgentFailure ? error.code : 'agent_error'
  return JSON.stringify({ code, message: message.slice(0, REASON_CHARS_MAX) })
}

/**
 * What a step that has an outcome gives.
 * @throws AgentFailure with the recorded reason, or because an earlier attempt has undone it while the run was failing
 */
export function recorded<T>(
  key: string,
  { outcome, result }: Extract<StepBegun, { kind: 'recorded' }>,
): T {
  if (outcome === 'done') return parsed<T>(result)
  if (outcome === 'compensated') {
    throw new AgentFailure('agent_error', `step ${key} was undone by an earlier attempt`)
  }
  const reason = parsed<{ code?: AgentFailure['code']; message?: string } | undefined>(result)
  throw new AgentFailure(
    reason?.code ?? 'agent_error',
    `step ${key} failed in an earlier call: ${reason?.message ?? 'no reason was recorded'}`,
  )
}
