import { Agent } from '@mastra/core/agent'
import { createTool } from '@mastra/core/tools'
import * as z from 'zod'

const OFFSETS: Readonly<Record<string, number>> = { lisbon: 0, berlin: 1, tokyo: 9 }

/** Answers the same every time, so that a repeated attempt does no harm and tests can compare. */
const timeIn = createTool({
  id: 'time_in',
  description: 'The local time of a city, as an offset from UTC.',
  inputSchema: z.object({ city: z.string() }),
  outputSchema: z.object({ city: z.string(), utcOffsetHours: z.number() }),
  execute: async ({ city }) => ({ city, utcOffsetHours: OFFSETS[city.toLowerCase()] ?? 0 }),
})

/** Where a request's context holds the signal that aborts when its caller has gone. */
export const CALLER_GONE = 'callerGone'

/** A Mastra agent with one tool, on any server that speaks OpenAI's chat completions. */
export function createClockAgent(model: { baseUrl: string; name: string; apiKey: string }): Agent {
  return new Agent({
    id: 'clock',
    name: 'clock',
    instructions: 'You tell people what time it is. Use time_in for cities.',
    model: {
      providerId: 'model',
      modelId: model.name,
      url: model.baseUrl,
      apiKey: model.apiKey,
    },
    tools: { time_in: timeIn },
    // The AG-UI bridge hands no signal to the agent; without one the model would be paid to go on
    // after everybody has left.
    defaultOptions: ({ requestContext }) => {
      const callerGone: unknown = requestContext.get(CALLER_GONE)
      return callerGone instanceof AbortSignal ? { abortSignal: callerGone } : {}
    },
  })
}
