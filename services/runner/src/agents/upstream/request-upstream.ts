import type { Socket } from 'node:net'
import { Client, type Dispatcher } from 'undici'
import { AgentFailure, type AgentRun } from '../agent.ts'
import type { Outbound } from '../outbound.ts'
import { closeSocket, connectUpstream } from './connect.ts'
import { failureOfRequest, failureOfStatus } from './http-failure.ts'
import { createWatchdog, type Watchdog } from './watchdog.ts'
import { withoutSecrets } from './without-secrets.ts'

/** One POST. The body is serialised already: what is sent is what was counted. */
export type UpstreamRequest = {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
}

export type UpstreamLimits = {
  readonly connectTimeoutMs: number
  readonly idleTimeoutMs: number
  readonly progressTimeoutMs: number
}

/** The head of a good answer came; `isStream` tells server-sent events from JSON. */
export type UpstreamAnswer = { isStream: boolean; bytes(): AsyncIterable<Uint8Array> }

const ERROR_BODY_BYTES_MAX = 64 << 10
const ERROR_BODY_WAIT_MS = 1000

/**
 * POSTs for the run and lets `read` have the answer. However it ends, the connection is closed before
 * this returns; an abort of the run or a silence destroys it at once, whatever is pending.
 * @throws AgentFailure, or the reason of the run's signal
 */
export async function requestUpstream<T>(
  request: UpstreamRequest,
  { outbound, limits }: { outbound: Outbound; limits: UpstreamLimits },
  run: Pick<AgentRun, 'signal' | 'assertHeld'>,
  read: (answer: UpstreamAnswer, watchdog: Watchdog) => Promise<T>,
): Promise<T> {
  run.signal.throwIfAborted()
  const stopping = new AbortController()
  const stop = () => stopping.abort(run.signal.reason)
  run.signal.addEventListener('abort', stop, { once: true })
  try {
    run.assertHeld()
    const socket = await connectedInTime(request.url, outbound, limits.connectTimeoutMs, stopping)
    return await exchange(socket, request, limits, run, stopping, read)
  } catch (error) {
    run.signal.throwIfAborted()
    throw stopping.signal.aborted ? stopping.signal.reason : withoutSecrets(error, request.headers)
  } finally {
    run.signal.removeEventListener('abort', stop)
  }
}

async function connectedInTime(
  url: string,
  outbound: Outbound,
  connectTimeoutMs: number,
  stopping: AbortController,
): Promise<Socket> {
  const tooLong = new AgentFailure('upstream_timeout', 'connecting took too long', {
    retryable: true,
  })
  const timer = setTimeout(() => stopping.abort(tooLong), Math.min(connectTimeoutMs, 2 ** 30))
  try {
    return await connectUpstream(new URL(url), outbound, stopping.signal)
  } catch (error) {
    throw failureOfRequest(error)
  } finally {
    clearTimeout(timer)
  }
}

async function exchange<T>(
  socket: Socket,
  request: UpstreamRequest,
  limits: UpstreamLimits,
  run: Pick<AgentRun, 'assertHeld'>,
  stopping: AbortController,
  read: (answer: UpstreamAnswer, watchdog: Watchdog) => Promise<T>,
): Promise<T> {
  // One connection a run, ours to destroy: an aborted stream never leaves a socket in a pool.
  const client = new Client(new URL(request.url).origin, {
    connect: oneConnection(socket),
    allowH2: false,
    headersTimeout: 0,
    bodyTimeout: 0,
    pipelining: 1,
  })
  const watchdog = createWatchdog(limits, (failure) => {
    const retryable = new AgentFailure(failure.code, failure.message, { retryable: true })
    stopping.abort(retryable)
  })
  try {
    run.assertHeld()
    const response = await headOf(client, request)
    watchdog.byte()
    await refuseFailure(response)
    const isStream = isEventStream(response)
    return await read({ isStream, bytes: () => bytesOf(response.body, watchdog) }, watchdog)
  } finally {
    watchdog.stop()
    await closeSocket(socket)
    await client.destroy()
  }
}

async function headOf(
  client: Client,
  { url, headers, body }: UpstreamRequest,
): Promise<Dispatcher.ResponseData> {
  const { pathname, search } = new URL(url)
  try {
    return await client.request({ method: 'POST', path: `${pathname}${search}`, headers, body })
  } catch (error) {
    throw failureOfRequest(error)
  }
}

/** undici waits for its connector, so the answer must not come before it does: hence the tick. */
function oneConnection(socket: Socket) {
  let taken = false
  return (_options: unknown, callback: (...result: [Error, null] | [null, Socket]) => void) => {
    const isOver = taken
    taken = true
    queueMicrotask(() => {
      if (isOver) callback(new Error('the connection to the upstream is over'), null)
      else callback(null, socket)
    })
  }
}

async function* bytesOf(
  body: AsyncIterable<Uint8Array>,
  watchdog: Watchdog,
): AsyncIterable<Uint8Array> {
  try {
    for await (const bytes of body) {
      watchdog.byte()
      yield bytes
    }
  } catch (error) {
    if (error instanceof AgentFailure) throw error
    throw connectionBroke(error)
  }
}

/** In the middle of an answer; whether it may be tried again depends on what was said until then. */
export function connectionBroke(cause: unknown): AgentFailure {
  const message = 'the connection to the upstream broke'
  return new AgentFailure('upstream_truncated', message, { cause, retryable: true })
}

/** @throws AgentFailure for every answer but a 200 with something to read */
async function refuseFailure(response: Dispatcher.ResponseData): Promise<void> {
  const { statusCode, headers } = response
  if (statusCode >= 200 && statusCode < 300 && statusCode !== 204 && statusCode !== 205) {
    const encoding = String(headers['content-encoding'] ?? 'identity')
    if (encoding === 'identity') return
    throw new AgentFailure('upstream_error', `the upstream encoded its answer: ${encoding}`)
  }
  const body = await textOf(response.body)
  const retryAfter = headers['retry-after']
  throw failureOfStatus(statusCode, Array.isArray(retryAfter) ? retryAfter[0] : retryAfter, body)
}

/** A server without a content type is believed; one that says HTML is not an agent. */
function isEventStream({ headers }: Dispatcher.ResponseData): boolean {
  const type = String(headers['content-type'] ?? 'text/event-stream').toLowerCase()
  if (type.startsWith('text/event-stream')) return true
  if (/^application\/([\w.-]+\+)?json\b/.test(type)) return false
  throw new AgentFailure('upstream_error', `the upstream answered with ${type}`)
}

/** The beginning of an error's text, for the log; the connection is not kept waiting for more. */
async function textOf(body: Dispatcher.ResponseData['body']): Promise<string> {
  const timer = setTimeout(() => body.destroy(), ERROR_BODY_WAIT_MS)
  let text = ''
  try {
    for await (const part of body) {
      text += Buffer.from(part).toString('utf8')
      if (text.length > ERROR_BODY_BYTES_MAX) break
    }
  } catch (error) {
    return `${text} (${error instanceof Error ? error.message : 'cut'})`
  } finally {
    clearTimeout(timer)
  }
  return text
}
