import { isIP } from 'node:net'
import { asError } from '@holdfast/std'
import { Client, type Dispatcher } from 'undici'
import { bareAddress, guardOutbound, type Outbound, OutboundRefused } from '../agents/outbound.ts'
import { retryAfterMs } from '../agents/upstream/http-failure.ts'
import { webhookHeaders } from './signature.ts'

/** What an endpoint made of one attempt. */
export type PostOutcome =
  | { readonly kind: 'confirmed'; readonly status: number }
  | {
      readonly kind: 'refused'
      readonly status: number | null
      /** Our own words; what an endpoint says is not repeated. */
      readonly error: string
      readonly retryAfterMs?: number | undefined
      /** It makes no sense to come again. */
      readonly final: boolean
    }

/** For everything: name, connection, TLS, sending, and the head of the answer. */
export const ATTEMPT_MS = 15_000
const BODY_BYTES_MAX = 64 << 10
const BODY_MS_MAX = 1000

/**
 * One attempt to tell an endpoint. Only a status 2xx confirms; a redirect is not followed, and 410 says that nobody
 * wants to be told any more. The answer's body is thrown away unread, as far as it comes at once.
 * @throws the signal's reason
 */
export async function postNotification(
  message: { readonly id: string; readonly body: string; readonly endpoint: string },
  key: Buffer | null,
  outbound: Outbound,
  signal: AbortSignal,
): Promise<PostOutcome> {
  const url = new URL(message.endpoint)
  const host = bareAddress(url.hostname)
  const guard = guardOutbound(host, outbound)
  if (isIP(host) !== 0 && !guard.permitsAddress(host)) return NOT_REACHABLE
  const late = AbortSignal.timeout(ATTEMPT_MS)
  const client = new Client(url.origin, {
    connect: { lookup: guard.lookup, timeout: ATTEMPT_MS },
    allowH2: false,
    headersTimeout: 0,
    bodyTimeout: 0,
  })
  try {
    const answer = await client.request({
      method: 'POST',
      path: `${url.pathname}${url.search}`,
      headers: {
        'content-type': 'application/json',
        'user-agent': 'Holdfast',
        ...webhookHeaders(key, message, Date.now()),
      },
      body: message.body,
      signal: AbortSignal.any([signal, late]),
    })
    await discard(answer.body)
    return outcomeOf(answer)
  } catch (error) {
    signal.throwIfAborted()
    return late.aborted ? TOO_LATE : unreached(error)
  } finally {
    await client.destroy()
  }
}

const NOT_REACHABLE: PostOutcome = {
  kind: 'refused',
  status: null,
  error: 'OUTBOUND_ALLOW does not let this address be reached',
  final: true,
}

const TOO_LATE: PostOutcome = {
  kind: 'refused',
  status: null,
  error: `no answer within ${ATTEMPT_MS / 1000} s`,
  final: false,
}

function outcomeOf({ statusCode, headers }: Dispatcher.ResponseData): PostOutcome {
  if (statusCode >= 200 && statusCode < 300) return { kind: 'confirmed', status: statusCode }
  const wish = headers['retry-after']
  return {
    kind: 'refused',
    status: statusCode,
    error: `answered ${statusCode}`,
    retryAfterMs: retryAfterMs(Array.isArray(wish) ? wish[0] : wish, Date.now()),
    final: statusCode === 410,
  }
}

/** The answer is known already: a body that breaks, hangs or does not end changes nothing. */
async function discard(body: Dispatcher.ResponseData['body']): Promise<void> {
  await body
    .dump({ limit: BODY_BYTES_MAX, signal: AbortSignal.timeout(BODY_MS_MAX) })
    .catch(() => undefined)
}

function unreached(error: unknown): PostOutcome {
  if (error instanceof OutboundRefused) return NOT_REACHABLE
  const failure = asError(error)
  const code = 'code' in failure && typeof failure.code === 'string' ? failure.code : failure.name
  return { kind: 'refused', status: null, error: `not reached: ${code}`, final: false }
}
