import type { Socket } from 'node:net'
import { callbackify } from 'node:util'
import { within } from '@holdfast/std'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { FetchLike, Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import {
  CancelledNotificationSchema,
  ErrorCode,
  isJSONRPCRequest,
  JSONRPCMessageSchema,
  type RequestId,
} from '@modelcontextprotocol/sdk/types.js'
import { Agent, fetch, type RequestInit, type Response } from 'undici'
import type { Outbound } from '../outbound.ts'
import { connectUpstream } from '../upstream/connect.ts'
import { MESSAGE_BYTES_MAX } from './mcp-limits.ts'

export type HttpServer = {
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  readonly outbound: Outbound
  readonly connectTimeoutMs: number
}

/** A server that is told of a cancel, or of the end, and does not answer must not hold anybody. */
const CANCEL_MS_MAX = 1000
/** What came last may still be on its way through the parser when its stream is over. */
const PARSE_MS_MAX = 500

/**
 * An MCP server over Streamable HTTP. Its connections are its own, go where outgoing calls may go, follow no redirect,
 * and are all closed with it. Telling the server of a cancelled request also ends the request itself.
 */
export function httpTransport(server: HttpServer): Transport {
  const closing = new AbortController()
  const agent = guardedAgent(server, closing.signal)
  const requests = new Map<RequestId, AbortController>()

  /** A stream that is over without the response it was opened for would be waited for until the call's time is up. */
  function over(id: RequestId) {
    const late = setTimeout(() => {
      if (!requests.delete(id)) return
      const message = 'the answer ended without a response'
      transport.onmessage?.({
        jsonrpc: '2.0',
        id,
        error: { code: ErrorCode.ConnectionClosed, message },
      })
    }, PARSE_MS_MAX)
    late.unref()
  }

  async function request(url: string | URL, init: RequestInit, id: RequestId): Promise<Response> {
    const ending = new AbortController()
    requests.set(id, ending)
    const signals = [ending.signal, ...(init.signal ? [init.signal] : [])]
    try {
      const response = await fetch(url, { ...init, signal: AbortSignal.any(signals) })
      return counted(response, () => over(id))
    } catch (error) {
      requests.delete(id)
      throw error
    }
  }

  async function cancel(url: string | URL, init: RequestInit, id: RequestId): Promise<Response> {
    const signals = [AbortSignal.timeout(CANCEL_MS_MAX), ...(init.signal ? [init.signal] : [])]
    try {
      return await fetch(url, { ...init, signal: AbortSignal.any(signals) })
    } finally {
      requests.get(id)?.abort()
      requests.delete(id)
    }
  }

  async function guardedFetch(url: string | URL, given: RequestInit): Promise<Response> {
    // Node's fetch calls a redirect an error then, like any that breaks.
    const init: RequestInit = { ...given, dispatcher: agent, redirect: 'error' }
    const { request: requestId, cancelled } = aboutOf(init)
    if (cancelled !== undefined) return await cancel(url, init, cancelled)
    if (requestId !== undefined) return await request(url, init, requestId)
    // What the server says of itself may go on for ever, but no message of it.
    const response = await fetch(url, init)
    return counted(response, () => undefined, { byEvent: isEventStream(response) })
  }

  const inner = new StreamableHTTPClientTransport(new URL(server.url), {
    // The same function in the words of another copy of undici's types.
    fetch: guardedFetch as unknown as FetchLike,
    requestInit: { headers: { ...server.headers } },
    // A stream that broke is not opened anew behind our back: its calls are told.
    reconnectionOptions: {
      maxRetries: 0,
      initialReconnectionDelay: 1000,
      maxReconnectionDelay: 1000,
      reconnectionDelayGrowFactor: 1,
    },
  })
  const transport: Transport = {
    start: () => inner.start(),
    send: (message) => inner.send(message),
    setProtocolVersion: (version) => inner.setProtocolVersion(version),
    async close() {
      await within(
        CANCEL_MS_MAX,
        inner.terminateSession().catch(() => undefined),
      )
      await inner.close()
      closing.abort()
      await agent.destroy()
    },
  }
  inner.onmessage = (message) => {
    if ('id' in message && !('method' in message) && message.id !== undefined) {
      requests.delete(message.id)
    }
    transport.onmessage?.(message)
  }
  inner.onerror = (error) => transport.onerror?.(error)
  inner.onclose = () => transport.onclose?.()
  return transport
}

/** The request that a body is, or that it takes back. */
function aboutOf({ body }: RequestInit): { request?: RequestId; cancelled?: RequestId } {
  if (typeof body !== 'string') return {}
  const message = JSONRPCMessageSchema.safeParse(JSON.parse(body)).data
  if (isJSONRPCRequest(message)) return { request: message.id }
  const { requestId } = CancelledNotificationSchema.safeParse(message).data?.params ?? {}
  return requestId === undefined ? {} : { cancelled: requestId }
}

/** Connections as for any upstream; only the time to connect is limited, the rest is the caller's. */
function guardedAgent(server: HttpServer, closing: AbortSignal): Agent {
  const opened = callbackify(() => connectInTime(server, closing))
  return new Agent({
    allowH2: false,
    headersTimeout: 0,
    bodyTimeout: 0,
    connect(_options, callback) {
      opened((error, socket) => (error ? callback(error, null) : callback(null, socket)))
    },
  })
}

async function connectInTime(
  { url, outbound, connectTimeoutMs }: HttpServer,
  closing: AbortSignal,
): Promise<Socket> {
  const stopping = new AbortController()
  const stop = () => stopping.abort(new Error('the MCP session is closed'))
  const late = setTimeout(
    () => stopping.abort(new Error('connecting took too long')),
    Math.min(connectTimeoutMs, 2 ** 30),
  )
  closing.addEventListener('abort', stop, { once: true })
  const leave = () => closing.removeEventListener('abort', stop)
  try {
    const socket = await connectUpstream(new URL(url), outbound, stopping.signal)
    socket.once('close', leave)
    return socket
  } catch (error) {
    leave()
    throw error
  } finally {
    clearTimeout(late)
  }
}

function isEventStream({ headers }: Response): boolean {
  return headers.get('content-type')?.startsWith('text/event-stream') === true
}

/** The same response, with its bytes counted, in all or anew for each of its events, and its end told. */
function counted(response: Response, over: () => void, { byEvent = false } = {}): Response {
  if (!response.body) {
    over()
    return response
  }
  let bytes = 0
  const [reader, isOver] = [response.body.getReader(), once(over)]
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        const { value, done } = await reader.read()
        const rest = byEvent && value ? behindLastEvent(value) : undefined
        bytes = rest ?? bytes + (value?.byteLength ?? 0)
        if (bytes > MESSAGE_BYTES_MAX) throw new Error('the answer of the MCP server is too large')
        if (value) controller.enqueue(value)
        if (!done) return
        controller.close()
        isOver()
      } catch (error) {
        isOver()
        controller.error(error)
        await reader.cancel().catch(() => undefined)
      }
    },
    async cancel(reason) {
      isOver()
      await reader.cancel(reason)
    },
  })
  const { status, statusText, headers } = response
  return new globalThis.Response(body, {
    status,
    statusText,
    headers: Object.fromEntries(headers),
  }) as unknown as Response
}

/** How many bytes stand behind the last blank line, if there is one. */
function behindLastEvent(bytes: Uint8Array): number | undefined {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const end = Math.max(text.lastIndexOf('\n\n'), text.lastIndexOf('\r\n\r\n'))
  return end < 0 ? undefined : text.length - end
}

function once(call: () => void): () => void {
  let isCalled = false
  return () => {
    if (isCalled) return
    isCalled = true
    call()
  }
}
