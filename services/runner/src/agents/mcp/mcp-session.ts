import type { McpServerSpec } from '@holdfast/protocol'
import { unlessAborted, within } from '@holdfast/std'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPError } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js'
import {
  type CallToolResult,
  CallToolResultSchema,
  ErrorCode,
  ListToolsResultSchema,
  McpError,
  type Tool,
  ToolListChangedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js'
import type { Logger } from 'pino'
import type { Outbound } from '../outbound.ts'
import { httpTransport } from './http-transport.ts'
import { McpFailure } from './mcp-failure.ts'
import { TOOLS_MAX } from './mcp-limits.ts'
import { stdioTransport } from './stdio-transport.ts'

export type McpTool = Tool

export type McpCall = {
  readonly name: string
  readonly arguments: Record<string, unknown>
  readonly meta: Readonly<Record<string, unknown>>
  readonly timeoutMs: number
}

/** One connection to one MCP server, as one user or as nobody in particular. */
export type McpSession = {
  /** The server has ended or does not know the session any more: another one is needed. */
  readonly isBroken: boolean
  /**
   * Asked once for all who want to know, so an abort only ends the waiting.
   * @throws McpFailure, or the signal's reason
   */
  tools(signal: AbortSignal): Promise<readonly McpTool[]>
  /**
   * Calls a tool. When `signal` aborts, or the time is over, the server is told, and nothing of the call is open when
   * this returns.
   * @throws McpFailure, or the signal's reason
   */
  call(call: McpCall, signal: AbortSignal): Promise<CallToolResult>
  close(): Promise<void>
}

export type SessionOptions = {
  readonly server: McpServerSpec
  /** The configured headers, filled for whom the session is. */
  readonly headers: Readonly<Record<string, string>>
  readonly outbound: Outbound
  readonly connectTimeoutMs: number
  /** For everything but a call. */
  readonly timeoutMs: number
  readonly log: Logger
}

/** A timer beyond this fires at once. */
const TIMER_MS_MAX = 2 ** 31 - 1
/** The server is told of a cancel before the call returns, if it listens. */
const CANCEL_MS_MAX = 1500

/**
 * Connects, and starts the server if it is a program; when `signal` aborts meanwhile, nothing is left of it.
 * @throws McpFailure
 */
export async function openMcpSession(
  options: SessionOptions,
  signal: AbortSignal,
): Promise<McpSession> {
  const { log, timeoutMs } = options
  const transport = transportOf(options)
  const client = new Client({ name: 'holdfast', version: '0.1.0' }, { capabilities: {} })
  const sends = trackSends(transport)
  const request = { timeout: Math.min(timeoutMs, TIMER_MS_MAX) }
  let isBroken = false
  let tools: Promise<readonly McpTool[]> | undefined

  client.onclose = () => {
    isBroken = true
  }
  client.onerror = (error) => log.debug({ err: error }, 'an MCP connection said')
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
    tools = undefined
  })

  function failed(error: unknown): McpFailure {
    const failure = failureOf(error)
    if (failure.kind === 'refused' || failure.kind === 'lost') isBroken = true
    return failure
  }

  // The library leaves its listener on the signal that it is given, and lets a server confirm the beginning for ever.
  const opening = new AbortController()
  const stop = () => opening.abort(signal.reason)
  signal.addEventListener('abort', stop, { once: true })
  const late = setTimeout(() => opening.abort(new Error('opening took too long')), request.timeout)
  try {
    signal.throwIfAborted()
    const connecting = client.connect(transport, { ...request, signal: opening.signal })
    await unlessAborted(connecting, opening.signal)
  } catch (error) {
    await client.close().catch(() => undefined)
    throw failed(error)
  } finally {
    clearTimeout(late)
    signal.removeEventListener('abort', stop)
  }
  return {
    get isBroken() {
      return isBroken
    },
    async tools(signal) {
      tools ??= listTools(client, request)
      try {
        return await unlessAborted(tools, signal)
      } catch (error) {
        signal.throwIfAborted()
        tools = undefined
        throw failed(error)
      }
    },
    async call({ name, arguments: given, meta, timeoutMs: limitMs }, signal) {
      signal.throwIfAborted()
      const stopping = new AbortController()
      const stop = () => stopping.abort('the run was stopped')
      signal.addEventListener('abort', stop, { once: true })
      const late = setTimeout(() => stopping.abort(TOO_LONG), Math.min(limitMs, TIMER_MS_MAX))
      try {
        const params = { name, arguments: given, _meta: { ...meta } }
        return await client.request({ method: 'tools/call', params }, CallToolResultSchema, {
          signal: stopping.signal,
          timeout: TIMER_MS_MAX,
        })
      } catch (error) {
        if (stopping.signal.aborted) await within(CANCEL_MS_MAX, sends.settled())
        signal.throwIfAborted()
        if (stopping.signal.reason === TOO_LONG) throw new McpFailure('timeout', error)
        throw failed(error)
      } finally {
        clearTimeout(late)
        signal.removeEventListener('abort', stop)
      }
    },
    async close() {
      isBroken = true
      await client.close()
    },
  }
}

const TOO_LONG = 'the call took too long'

function transportOf(options: SessionOptions): Transport {
  const { server, headers, outbound, connectTimeoutMs, log } = options
  if ('command' in server) return stdioTransport(server, log)
  return httpTransport({ url: server.url, headers, outbound, connectTimeoutMs })
}

async function listTools(client: Client, options: { timeout: number }): Promise<McpTool[]> {
  const tools: McpTool[] = []
  let cursor: string | undefined
  do {
    const params = cursor === undefined ? {} : { cursor }
    const page = await client.request(
      { method: 'tools/list', params },
      ListToolsResultSchema,
      options,
    )
    tools.push(...page.tools)
    cursor = page.nextCursor
  } while (cursor !== undefined && tools.length < TOOLS_MAX)
  return tools.slice(0, TOOLS_MAX)
}

function failureOf(error: unknown): McpFailure {
  if (error instanceof McpError) {
    const isCut = error.code === Number(ErrorCode.ConnectionClosed)
    return new McpFailure(isCut ? 'lost' : 'answered', error)
  }
  // An answer of the server's HTTP means that no tool was called; a request that could not be sent means so too.
  const isRefused = error instanceof StreamableHTTPError && (error.code ?? 500) < 500
  return new McpFailure(isRefused || isNotSent(error) ? 'refused' : 'lost', error)
}

const NOT_SENT: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ENOTFOUND', 'ENOENT', 'EACCES'])

function isNotSent(error: unknown): boolean {
  if (!(error instanceof Error)) return false
  if ('code' in error && typeof error.code === 'string' && NOT_SENT.has(error.code)) return true
  return error.name === 'OutboundRefused' || isNotSent(error.cause)
}

/** Waits for what the client sends without waiting, such as cancels. */
function trackSends(transport: Transport): { settled(): Promise<unknown> } {
  const sending = new Set<Promise<void>>()
  const send = transport.send.bind(transport)
  transport.send = async (message, options) => {
    const sent = send(message, options)
    sending.add(sent)
    try {
      await sent
    } finally {
      sending.delete(sent)
    }
  }
  return { settled: () => Promise.allSettled(sending) }
}
