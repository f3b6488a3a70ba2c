import type { AgUiAgentSpec } from '@holdfast/protocol'
import type { Agent } from '../agent.ts'
import type { Outbound } from '../outbound.ts'
import { notedLog, withoutRetry } from '../upstream/noted-log.ts'
import { requestUpstream } from '../upstream/request-upstream.ts'
import { SSE_CAPS, type SseCaps } from '../upstream/sse-reader.ts'
import { readAnswer } from './read-answer.ts'
import { requestHeaders, runInput } from './run-input.ts'

export type AgUiDeps = { outbound: Outbound; caps?: SseCaps }

/** An agent elsewhere that speaks AG-UI over HTTP and server-sent events. */
export function createAgUiAgent(spec: AgUiAgentSpec, deps: AgUiDeps): Agent {
  const caps = deps.caps ?? SSE_CAPS
  return {
    type: 'ag-ui',
    callsElsewhere: true,
    async run(run) {
      const log = notedLog(run)
      try {
        return await requestUpstream(
          {
            url: spec.url,
            headers: requestHeaders(spec, run),
            body: JSON.stringify(runInput(run)),
          },
          { outbound: deps.outbound, limits: spec },
          run,
          (answer, watchdog) => readAnswer(answer, { run, log, watchdog, caps }),
        )
      } catch (error) {
        run.signal.throwIfAborted()
        throw log.emitted ? withoutRetry(error) : error
      }
    },
  }
}
