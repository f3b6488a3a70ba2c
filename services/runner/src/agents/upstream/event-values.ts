import type { Logger } from 'pino'
import { AgentFailure } from '../agent.ts'

/** OpenAI's mark that nothing more comes. Only a whole payload is one; inside a text it is text. */
export const DONE = Symbol('[DONE]')

/** What the payloads of events say, one after the other, so that what stands before a broken one counts. */
export function* eventValues(data: Iterable<string>, log: Logger): Iterable<unknown> {
  for (const payload of data) {
    if (payload.trim() === '[DONE]') yield DONE
    else if (payload.startsWith(':')) log.debug('upstream sent a comment as data')
    else yield parsed(payload)
  }
}

/** Of a stream's last payload without its blank line: half an event is a cut, not a bad event. */
export function isWhole(payload: string): boolean {
  if (payload.trim() === '[DONE]') return true
  try {
    JSON.parse(payload)
    return true
  } catch {
    return false
  }
}

function parsed(payload: string): unknown {
  try {
    return JSON.parse(payload)
  } catch (error) {
    throw new AgentFailure('upstream_error', 'the upstream sent an event that is not JSON', {
      cause: error,
    })
  }
}
