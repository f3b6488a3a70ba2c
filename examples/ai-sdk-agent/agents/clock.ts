import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { defineAgent } from '@holdfast/agent-kit'
import { isStepCount, streamText, tool } from 'ai'
import * as z from 'zod'
import { modelMessages } from './model-messages.ts'
import { say } from './say.ts'

const {
  MODEL_BASE_URL = 'http://127.0.0.1:11434/v1',
  MODEL = 'llama3.2',
  MODEL_API_KEY,
} = process.env

/** Any provider of the AI SDK goes here. */
const model = createOpenAICompatible({
  name: 'model',
  baseURL: MODEL_BASE_URL,
  includeUsage: true,
  ...(MODEL_API_KEY ? { apiKey: MODEL_API_KEY } : {}),
}).chatModel(MODEL)

const OFFSETS: Readonly<Record<string, number>> = { lisbon: 0, berlin: 1, tokyo: 9 }

/** The AI SDK talks to the model; what it says, calls and costs goes through the run. */
export default defineAgent({
  run(run) {
    const timeIn = tool({
      description: 'The local time of a city, as an offset from UTC.',
      inputSchema: z.object({ city: z.string() }),
      // A step of the run: no attempt asks again for what another one knows.
      execute: ({ city }) =>
        run.tool(
          'time_in',
          { city },
          () => ({ city, utcOffsetHours: OFFSETS[city.toLowerCase()] ?? 0 }),
          { policy: 'retry' },
        ),
    })
    const answer = streamText({
      model,
      instructions: 'You tell people what time it is. Use time_in for cities.',
      messages: modelMessages(run.messages),
      tools: { time_in: timeIn },
      stopWhen: isStepCount(8),
      abortSignal: run.signal,
      // It comes as a part of the stream, and is thrown there.
      onError: () => undefined,
    })
    return say(run, answer.fullStream)
  },
})
