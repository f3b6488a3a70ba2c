// Goal: the examples do what their READMEs say. Method: as a user starts them, with stand-ins for what they talk to.
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { cancel } from '../chaos/observe.ts'
import { request, send } from '../support/api.ts'
import { attach, checkAll, checkRun } from '../support/checker.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import {
  HELLO_TEXT,
  type ModelServer,
  startModelServer,
  TOOL_TEXT,
} from '../support/model-server.ts'
import { type StandIn, startStandIn } from '../support/stand-in.ts'

const EXAMPLES = fileURLToPath(new URL('../../examples/', import.meta.url))
const ARN = 'arn:aws:bedrock-agentcore:eu-central-1:123456789012:runtime/mine-abc'

let holdfast: Holdfast
let model: ModelServer
let runtime: StandIn
let sources: StandIn

beforeAll(async () => {
  model = await startModelServer({ chunkMs: 2 })
  runtime = await startStandIn()
  sources = await startStandIn(({ path, json }) => {
    if (path.includes('nothing')) return json({ error: 'down' }, 500)
    // The others are still searching when it fails.
    if (path.startsWith('/news') && path.includes('half')) return json({ error: 'down' }, 500)
    if (path.includes('half')) return
    const title = path.slice(1).replace(/\?.*/, '')
    json({ results: [{ title, url: `https://example.org/${title}` }] })
  })
  holdfast = await startHoldfast({
    agents: { agents: await agentsOf('research-agent', 'ai-sdk-agent', 'agentcore-agent') },
    runnerEnv: {
      SEARCH_URL: sources.url,
      MODEL_BASE_URL: model.url,
      MODEL: 'scripted',
      AGENT_RUNTIME_ARN: ARN,
      AWS_ENDPOINT_URL: runtime.url,
      AWS_REGION: 'eu-central-1',
      AWS_ACCESS_KEY_ID: 'key',
      AWS_SECRET_ACCESS_KEY: 'secret',
    },
  })
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await model?.stop()
  await runtime?.[Symbol.asyncDispose]()
  await sources?.[Symbol.asyncDispose]()
})

/** What the examples' own agents files say, with paths from here. */
async function agentsOf(...examples: string[]) {
  const all: Record<string, { path: string }> = {}
  for (const example of examples) {
    const file = JSON.parse(await readFile(join(EXAMPLES, example, 'agents.json'), 'utf8'))
    for (const [name, spec] of Object.entries<{ path: string }>(file.agents)) {
      all[name] = { ...spec, path: join(EXAMPLES, example, spec.path) }
    }
  }
  return all
}

async function ask(agent: string, message: string, conversationId?: string) {
  const { runId } = await send(holdfast.url, message, {
    agent,
    ...(conversationId && { conversationId }),
  })
  return checkRun(holdfast.url, runId)
}

test('research asks three sources at once, says a report and keeps it as a file', async () => {
  const { run, text, messages } = await ask('research', 'tides')
  expect(run).toMatchObject({ outcome: 'success', result: { findings: 3 } })
  expect(text).toContain('1. [papers](https://example.org/papers)')
  expect(text).toContain('3. [web](https://example.org/web)')
  const tools = messages.filter(({ message }) => message.role === 'tool')
  expect(tools).toHaveLength(3)
  const keys = sources.exchanges.map(({ headers }) => headers['idempotency-key'])
  expect(new Set(keys).size).toBe(3)
  const file = await fetch(`${holdfast.url}/runs/${run.runId}/artifacts/report.md`)
  expect(await file.text()).toBe(text)
})

test('research whose one source fails leaves none of its searches open', async () => {
  const before = sources.exchanges.length
  const { run, messages } = await ask('research', 'half')
  expect(run).toMatchObject({ state: 'failed', error: { code: 'agent_error' } })
  const results = messages.flatMap(({ message }) =>
    message.role === 'tool' ? [message.content] : [],
  )
  expect(results.filter((content) => content === 'cancelled')).toHaveLength(2)
  expect(results).toContain('failed')
  await Promise.all(sources.exchanges.slice(before).map(({ closed }) => closed))
})

test('the AI SDK’s agent answers, calls its tool and knows what was said before', async () => {
  const first = await ask('clock', 'what time is it in Tokyo?')
  expect(first.messages.map(({ message }) => message.role)).toEqual([
    'user',
    'assistant',
    'tool',
    'assistant',
  ])
  expect(first.text).toBe(TOOL_TEXT)
  expect(first.run).toMatchObject({ usage: [{ inputTokens: expect.any(Number) }] })
  const second = await ask('clock', 'hello again', first.run.conversationId)
  expect(second.text).toBe(HELLO_TEXT)
  const [asked] = model.requests().slice(-1)
  expect(asked?.map(({ role }) => role)).toEqual([
    'system',
    'user',
    'assistant',
    'tool',
    'assistant',
    'user',
  ])
})

test('an AgentCore runtime is invoked once, as the caller, and its stream is the answer', async () => {
  const { runId, conversationId } = await send(holdfast.url, 'hello', { agent: 'agentcore' })
  const invoked = await runtime.exchange(0)
  expect(decodeURIComponent(invoked.path)).toBe(`/runtimes/${ARN}/invocations?qualifier=DEFAULT`)
  expect(JSON.parse(invoked.body)).toEqual({ prompt: 'hello' })
  expect(invoked.headers).toMatchObject({
    authorization: expect.stringMatching(/^AWS4-HMAC-SHA256 .*eu-central-1/),
    'x-amzn-bedrock-agentcore-runtime-session-id': `holdfast-${conversationId}`,
    'x-amzn-bedrock-agentcore-runtime-user-id': 'dev/dev',
  })
  invoked.response.writeHead(200, { 'content-type': 'text/event-stream' })
  invoked.response.write('data: "Good "\n\n')
  await attach(holdfast.url, runId).seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
  invoked.response.end('data: {"delta": "evening"}\n\n')
  expect((await checkRun(holdfast.url, runId)).text).toBe('Good evening')
  expect(runtime.exchanges).toHaveLength(1)
})

test('an AgentCore answer in one piece is taken, an error is the run’s failure, a cancel closes the stream', async () => {
  const whole = await send(holdfast.url, 'hello', { agent: 'agentcore' })
  ;(await runtime.exchange(1)).json({ result: 'all at once' })
  expect((await checkRun(holdfast.url, whole.runId)).text).toBe('all at once')

  const refused = await send(holdfast.url, 'hello', { agent: 'agentcore' })
  ;(await runtime.exchange(2)).json({ message: 'secret reason' }, 500)
  const { run, log } = await checkRun(holdfast.url, refused.runId)
  expect(run).toMatchObject({ state: 'failed', error: { code: 'agent_error' } })
  expect(JSON.stringify(log)).not.toContain('secret reason')

  const stopped = await send(holdfast.url, 'hello', { agent: 'agentcore' })
  const open = await runtime.exchange(3)
  open.response.writeHead(200, { 'content-type': 'text/event-stream' })
  open.response.write('data: "I begin"\n\n')
  await attach(holdfast.url, stopped.runId).seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
  await cancel(holdfast.url, stopped.runId)
  await open.closed
  expect((await checkRun(holdfast.url, stopped.runId)).run.outcome).toBe('cancelled')
  expect(runtime.exchanges).toHaveLength(4)
  const { body } = await request(`${holdfast.url}/runs/${stopped.runId}`)
  expect(body['inDoubt']).toBeDefined()
})
