import { AgentFailure } from '../agent.ts'
import { OutboundRefused } from '../outbound.ts'

/** The network's ways to say that nothing has happened yet and the same may work in a moment. */
const TRANSIENT: ReadonlySet<string> = new Set([
  'EAI_AGAIN',
  'ECONNABORTED',
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EPIPE',
  'ETIMEDOUT',
  'UND_ERR_SOCKET',
])

/** What an answer that is no success means; `body` is only for the log. */
export function failureOfStatus(
  status: number,
  retryAfter: string | undefined,
  body: string,
): AgentFailure {
  const message = `the upstream answered ${status}: ${body.slice(0, 2000)}`
  if (status !== 429 && status < 500) return new AgentFailure('upstream_error', message)
  return new AgentFailure('upstream_error', message, {
    retryable: true,
    retryAfterMs: retryAfterMs(retryAfter, Date.now()),
  })
}

/** Before the answer's head came: nothing of the run can have been seen. */
export function failureOfRequest(error: unknown): AgentFailure {
  if (error instanceof AgentFailure) return error
  if (error instanceof OutboundRefused) {
    return new AgentFailure('upstream_error', 'the upstream may not be reached from here', {
      cause: error,
    })
  }
  return new AgentFailure('upstream_error', 'the upstream could not be reached', {
    cause: error,
    retryable: codesOf(error).some((code) => TRANSIENT.has(code)),
  })
}

/** `Retry-After` in seconds or as a date; `undefined` if it says neither. */
export function retryAfterMs(value: string | undefined, nowMs: number): number | undefined {
  const text = value?.trim()
  if (!text) return undefined
  if (/^\d+(\.\d+)?$/.test(text)) return Math.ceil(Number(text) * 1000)
  const atMs = Date.parse(text)
  return Number.isNaN(atMs) ? undefined : Math.max(0, atMs - nowMs)
}

/** Several addresses may have been tried, each with an error of its own. */
function codesOf(error: unknown): string[] {
  if (!(error instanceof Error)) return []
  const inner = error instanceof AggregateError ? error.errors.flatMap(codesOf) : []
  const own = 'code' in error && typeof error.code === 'string' ? [error.code] : []
  return [...own, ...inner, ...codesOf(error.cause)]
}
