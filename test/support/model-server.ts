import { type ChatMessage, LLMock } from '@copilotkit/aimock'

export type ModelServer = {
  /** The base URL of an OpenAI-compatible API, with `/v1`. */
  readonly url: string
  /** The messages of each chat completion that was asked for, oldest first. */
  requests(): ChatMessage[][]
  stop(): Promise<void>
}

export const HELLO_TEXT = 'Hello from the model. What can I do for you?'
export const TOOL_TEXT = 'It is nine hours later in Tokyo.'

/** A model whose user's message holds `when` makes these calls, and `says` something once it has the results. */
export type Script = {
  readonly when: string
  readonly calls: readonly { readonly name: string; readonly arguments: string }[]
  readonly says: string
}

/**
 * A model that knows two things: `hello` is answered with HELLO_TEXT; a message with `time` calls
 * `time_in` for Tokyo and then says TOOL_TEXT. `chunkMs` is the pause between its chunks. Scripts come first.
 */
export async function startModelServer({
  chunkMs = 0,
  scripts = [],
}: {
  chunkMs?: number
  scripts?: readonly Script[]
} = {}): Promise<ModelServer> {
  const model = new LLMock({ port: 0, host: '127.0.0.1', latency: chunkMs, chunkSize: 5 })
  for (const { when, calls, says } of scripts) {
    model.on({ userMessage: when, hasToolResult: true }, { content: says })
    model.on({ userMessage: when, hasToolResult: false }, { toolCalls: [...calls] })
  }
  model.on({ userMessage: 'time', hasToolResult: true }, { content: TOOL_TEXT })
  model.on(
    { userMessage: 'time', hasToolResult: false },
    { toolCalls: [{ name: 'time_in', arguments: '{"city":"Tokyo"}' }] },
  )
  model.on({ userMessage: 'hello' }, { content: HELLO_TEXT })
  await model.start()
  return {
    url: `${model.url}/v1`,
    requests: () =>
      model
        .getRequests()
        .flatMap(({ body }) => (Array.isArray(body?.messages) ? [body.messages] : [])),
    stop: () => model.stop(),
  }
}
