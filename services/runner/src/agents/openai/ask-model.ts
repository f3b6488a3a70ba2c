import type { OpenAiAgentSpec, TokenUsage } from '@holdfast/protocol'
import { AgentFailure, type AgentRun } from '../agent.ts'
import type { Outbound } from '../outbound.ts'
import type { RunIds } from '../run-ids.ts'
import type { NotedLog } from '../upstream/noted-log.ts'
import { requestUpstream } from '../upstream/request-upstream.ts'
import { SSE_CAPS, type SseCaps } from '../upstream/sse-reader.ts'
import { chatRequest, type Question } from './chat-request.ts'
import { createCompletion, type Said } from './completion.ts'
import { readCompletion } from './read-completion.ts'

/** What came of one request to the model. */
export type Answer = Said & {
  readonly finishReason: string
  readonly usage: TokenUsage | undefined
}

export type AskDeps = {
  readonly spec: OpenAiAgentSpec
  readonly outbound: Outbound
  readonly run: AgentRun
  readonly ids: RunIds
  readonly log: NotedLog
  readonly caps?: SseCaps | undefined
}

/**
 * Asks the model once and writes its answer to the log while it comes.
 * @throws AgentFailure, with what was used; what was said until then stays said
 */
export async function askModel(deps: AskDeps, question: Question): Promise<Answer> {
  const { spec, outbound, run, ids, log, caps = SSE_CAPS } = deps
  const completion = createCompletion(ids)
  const used = () => completion.usage && { model: spec.model, ...completion.usage }
  try {
    const request = chatRequest(spec, run, question)
    const said = await requestUpstream(
      request,
      { outbound, limits: spec },
      run,
      (answer, watchdog) => readCompletion(answer, { run, log, watchdog, caps, completion }),
    )
    return { ...said, usage: used() }
  } catch (error) {
    const usage = used()
    throw usage ? withUsage(error, usage) : error
  }
}

/** What was used has to be paid for, however it ended. */
function withUsage(error: unknown, usage: TokenUsage): unknown {
  if (!(error instanceof AgentFailure)) return error
  return new AgentFailure(error.code, error.message, {
    ...error,
    cause: error.cause,
    usage: [usage],
  })
}
