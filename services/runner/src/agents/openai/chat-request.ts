import type { OpenAiAgentSpec } from '@holdfast/protocol'
import { type ForWhom, filledHeaders } from '../upstream/filled-headers.ts'
import type { UpstreamRequest } from '../upstream/request-upstream.ts'
import type { ChatMessage } from './chat-messages.ts'

/** A tool as the model is told of it. */
export type ChatTool = {
  readonly type: 'function'
  readonly function: {
    readonly name: string
    readonly description?: string
    readonly parameters: unknown
  }
}

export type Question = {
  readonly messages: readonly ChatMessage[]
  readonly tools: readonly ChatTool[]
  /** Tools are known, but may not be called any more. */
  readonly answerNow: boolean
}

/** A request for a streamed chat completion; what the operator wrote under `parameters` has the last word. */
export function chatRequest(
  spec: OpenAiAgentSpec,
  run: ForWhom,
  question: Question,
): UpstreamRequest {
  const { messages, tools, answerNow } = question
  const body: Record<string, unknown> = {
    model: spec.model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    ...(tools.length > 0 && { tools }),
    ...(tools.length > 0 && answerNow && { tool_choice: 'none' }),
    ...spec.parameters,
  }
  const given = Object.entries(body).filter(([, value]) => value !== null)
  return {
    url: completionsUrl(spec.baseUrl),
    headers: {
      ...(spec.apiKey !== undefined && { authorization: `Bearer ${spec.apiKey}` }),
      ...filledHeaders(spec.headers, run),
      'content-type': 'application/json',
      accept: 'text/event-stream',
      'accept-encoding': 'identity',
    },
    body: JSON.stringify(Object.fromEntries(given)),
  }
}

/** A query of the base URL, such as an API version, stays. */
function completionsUrl(baseUrl: string): string {
  const url = new URL(baseUrl)
  url.pathname = `${url.pathname.replace(/\/+$/, '')}/chat/completions`
  return url.href
}
