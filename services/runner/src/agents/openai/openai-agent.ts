import type { OpenAiAgentSpec } from '@holdfast/protocol'
import type { Agent } from '../agent.ts'
import type { Outbound } from '../outbound.ts'
import { createRunIds } from '../run-ids.ts'
import { notedLog, withoutRetry } from '../upstream/noted-log.ts'
import type { SseCaps } from '../upstream/sse-reader.ts'
import { converse } from './converse.ts'

export type OpenAiDeps = { readonly outbound: Outbound; readonly caps?: SseCaps | undefined }

/** A model behind any server that speaks OpenAI's chat completions. */
export function createOpenAiAgent(spec: OpenAiAgentSpec, deps: OpenAiDeps): Agent {
  return {
    type: 'openai',
    resumes: true,
    async run(run) {
      const log = notedLog(run)
      try {
        return await converse({ spec, ...deps, run, ids: createRunIds(run), log })
      } catch (error) {
        run.signal.throwIfAborted()
        // What a checkpoint kept is visible too.
        throw log.emitted || run.saved ? withoutRetry(error) : error
      }
    },
  }
}
