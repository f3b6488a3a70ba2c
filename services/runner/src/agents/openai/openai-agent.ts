import type { OpenAiAgentSpec } from '@holdfast/protocol'
import type { Logger } from 'pino'
import type { Agent } from '../agent.ts'
import { sessionPool } from '../mcp/session-pool.ts'
import type { Outbound } from '../outbound.ts'
import { createRunIds } from '../run-ids.ts'
import { notedLog, withoutRetry } from '../upstream/noted-log.ts'
import type { SseCaps } from '../upstream/sse-reader.ts'
import { converse } from './converse.ts'

export type OpenAiDeps = {
  readonly outbound: Outbound
  readonly log: Logger
  readonly caps?: SseCaps | undefined
}

/** A server that is a program may have to be fetched before it can begin. */
const OPEN_MS_MAX = 60_000

/** A model behind any server that speaks OpenAI's chat completions. */
export function createOpenAiAgent(spec: OpenAiAgentSpec, deps: OpenAiDeps): Agent {
  const { outbound, log: ownLog, caps } = deps
  const { mcpServers: servers, connectTimeoutMs } = spec
  const sessions = sessionPool({
    servers,
    outbound,
    connectTimeoutMs,
    openTimeoutMs: OPEN_MS_MAX,
    log: ownLog,
  })
  return {
    type: 'openai',
    resumes: true,
    close: () => sessions.close(),
    async run(run) {
      const log = notedLog(run)
      try {
        return await converse({ spec, outbound, caps, sessions, run, ids: createRunIds(run), log })
      } catch (error) {
        run.signal.throwIfAborted()
        // What a checkpoint kept is visible too.
        throw log.emitted || run.saved ? withoutRetry(error) : error
      }
    },
  }
}
