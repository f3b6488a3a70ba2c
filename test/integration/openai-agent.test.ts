// Goal: a model behind chat completions is an agent like any other. Method: a stand-in for the model that streams as
// OpenAI does, and the public API.
import { HttpAgent } from '@ag-ui/client'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { request, send } from '../support/api.ts'
import { checkAll, checkRun } from '../support/checker.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { HELLO_TEXT, type ModelServer, startModelServer } from '../support/model-server.ts'

const KEY = 'sk-secret-0123456789'

let model: ModelServer
let holdfast: Holdfast

beforeAll(async () => {
  model = await startModelServer({ chunkMs: 1 })
  const openai = { type: 'openai', baseUrl: model.url, model: 'scripted', apiKey: '${MODEL_KEY}' }
  holdfast = await startHoldfast({
    runnerEnv: { MODEL_KEY: KEY, LOG_LEVEL: 'trace' },
    agents: {
      default: 'assistant',
      agents: {
        assistant: { ...openai, system: 'Be brief.' },
        lost: { ...openai, baseUrl: `${model.url}/nowhere`, maxAttempts: 1 },
      },
    },
  })
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await model?.stop()
})

test('a model answers, is paid for, and sees the conversation in its next turn', async () => {
  const first = await send(holdfast.url, 'hello')
  const checked = await checkRun(holdfast.url, first.runId)
  expect(checked.text).toBe(HELLO_TEXT)
  expect(checked.run).toMatchObject({
    outcome: 'success',
    usage: [{ model: 'scripted', inputTokens: expect.any(Number) }],
  })
  const { conversationId } = first
  const second = await send(holdfast.url, 'hello again', { conversationId })
  await checkRun(holdfast.url, second.runId)
  expect(model.requests().at(-1)).toMatchObject([
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'hello' },
    { role: 'assistant', content: HELLO_TEXT },
    { role: 'user', content: 'hello again' },
  ])
})

test('a stock client’s own tool ends the run with its call pending', async () => {
  const agent = new HttpAgent({ url: `${holdfast.url}/ag-ui/assistant`, threadId: 'front-end' })
  agent.addMessage({ id: 'm1', role: 'user', content: 'what time is it in Tokyo?' })
  const tools = [{ name: 'time_in', description: 'tells the time', parameters: {} }]
  const { newMessages } = await agent.runAgent({ runId: 'turn-1', tools })
  expect(newMessages).toMatchObject([
    {
      role: 'assistant',
      toolCalls: [{ function: { name: 'time_in', arguments: '{"city":"Tokyo"}' } }],
    },
  ])
  const { body } = await request(`${holdfast.url}/runs?limit=1`)
  const [newest] = body['runs'] as { runId: string }[]
  const { log } = await checkRun(holdfast.url, newest?.runId ?? '')
  const [call] = newMessages.flatMap((message) =>
    message.role === 'assistant' ? (message.toolCalls ?? []) : [],
  )
  expect(log.at(-1)?.event).toMatchObject({
    outcome: { type: 'success', pendingToolCallIds: [call?.id] },
  })
})

test('what the provider says of a failure, and every key, stays out of the answers and the key out of the log', async () => {
  const { runId } = await send(holdfast.url, 'hello', { agent: 'lost' })
  const { run, log } = await checkRun(holdfast.url, runId)
  expect(run).toMatchObject({ state: 'failed', error: { code: 'upstream_error' } })
  const told = JSON.stringify([run, log])
  expect(told).not.toContain('nowhere')
  const [runner] = holdfast.runners
  expect(runner?.log()).toContain('the upstream answered 404')
  expect(runner?.log()).not.toContain(KEY)
})
