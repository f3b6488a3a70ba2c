import type { McpServerSpec } from '@holdfast/protocol'
import { unlessAborted, within } from '@holdfast/std'
import type { Logger } from 'pino'
import type { Outbound } from '../outbound.ts'
import { type ForWhom, filledHeaders } from '../upstream/filled-headers.ts'
import type { McpSession } from './mcp-session.ts'

export type PoolOptions = {
  readonly servers: Readonly<Record<string, McpServerSpec>>
  readonly outbound: Outbound
  readonly connectTimeoutMs: number
  /** For opening a session, and for everything but calls. */
  readonly openTimeoutMs: number
  readonly log: Logger
}

export type SessionPool = {
  /**
   * Lends the session of a server, opened if there is none that works. Whoever has other headers has another session.
   * @throws McpFailure, or the signal's reason
   */
  lend<T>(
    server: string,
    whom: ForWhom,
    signal: AbortSignal,
    use: (session: McpSession) => Promise<T>,
  ): Promise<T>
  /** Closes all sessions, and ends the servers that are our children. */
  close(): Promise<void>
}

/** A session that is somebody's own is closed when nobody has used it for so long. */
const IDLE_MS_MAX = 60_000
const CLOSE_MS_MAX = 5000

type Entry = {
  readonly session: Promise<McpSession>
  users: number
  idle: NodeJS.Timeout | undefined
}

/** The MCP sessions of one agent: one a server, or one a server and user where its headers name the user. */
export function sessionPool(options: PoolOptions): SessionPool {
  const { servers, log } = options
  const entries = new Map<string, Entry>()
  const ending = new Set<Promise<void>>()
  const closing = new AbortController()

  function close(key: string, entry: Entry) {
    if (entries.get(key) === entry) entries.delete(key)
    clearTimeout(entry.idle)
    const ended = entry.session
      .then((session) => within(CLOSE_MS_MAX, session.close()))
      .then(
        () => undefined,
        (error: unknown) => log.debug({ err: error }, 'an MCP session did not close'),
      )
    ending.add(ended)
    ended.then(
      () => ending.delete(ended),
      () => undefined,
    )
  }

  async function entryOf(
    key: string,
    open: () => Promise<McpSession>,
    signal: AbortSignal,
  ): Promise<Entry> {
    const known = entries.get(key)
    if (known && !(await unlessAborted(isBroken(known), signal))) return known
    // Somebody else may have found it broken as well, and be further.
    const newer = entries.get(key)
    if (newer && newer !== known) return newer
    if (known) close(key, known)
    closing.signal.throwIfAborted()
    const entry: Entry = { session: open(), users: 0, idle: undefined }
    entry.session.catch(() => {
      if (entries.get(key) === entry) entries.delete(key)
    })
    entries.set(key, entry)
    return entry
  }

  return {
    async lend(server, whom, signal, use) {
      const spec = servers[server]
      if (!spec) throw new Error(`there is no MCP server ${server}`)
      const headers = 'headers' in spec ? filledHeaders(spec.headers, whom) : {}
      const key = JSON.stringify([server, headers])
      const open = () => opened(spec, headers, options, server, closing.signal)
      const entry = await entryOf(key, open, signal)
      entry.users += 1
      clearTimeout(entry.idle)
      try {
        return await use(await unlessAborted(entry.session, signal))
      } finally {
        entry.users -= 1
        if (entry.users === 0 && isSomebodys(spec)) {
          entry.idle = setTimeout(() => close(key, entry), IDLE_MS_MAX)
          entry.idle.unref()
        }
      }
    },
    async close() {
      closing.abort(new Error('the MCP sessions are closed'))
      for (const [key, entry] of entries) close(key, entry)
      await Promise.all(ending)
    },
  }
}

/** The protocol's library takes a moment to load, which only runners that speak it have to wait for. */
async function opened(
  server: McpServerSpec,
  headers: Record<string, string>,
  options: PoolOptions,
  name: string,
  signal: AbortSignal,
): Promise<McpSession> {
  const { openMcpSession } = await import('./mcp-session.ts')
  const { outbound, connectTimeoutMs, openTimeoutMs: timeoutMs, log } = options
  const sessionLog = log.child({ mcpServer: name })
  return await openMcpSession(
    { server, headers, outbound, connectTimeoutMs, timeoutMs, log: sessionLog },
    signal,
  )
}

async function isBroken({ session }: Entry): Promise<boolean> {
  return await session.then(
    (opened) => opened.isBroken,
    () => true,
  )
}

function isSomebodys(spec: McpServerSpec): boolean {
  return 'headers' in spec && Object.values(spec.headers).some((value) => /\{\w+\}/.test(value))
}
