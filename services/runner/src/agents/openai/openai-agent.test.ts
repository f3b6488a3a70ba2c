import { parseAgentsFile } from '@holdfast/protocol'
import { pino } from 'pino'
import { expect, test } from 'vitest'
import { recordedRun } from '../testing/recorded-run.ts'
import { type Script, scriptedUpstream } from '../testing/scripted-upstream.ts'
import { createOpenAiAgent } from './openai-agent.ts'

const chunk = (delta: object, finish_reason: string | null = null) =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason }] })}\n\n`
const ANSWER = chunk({ content: 'Hi' }, 'stop')
const KEY = 'sk-secret-0123456789'

function agentAt(url: string, more: object = {}) {
  const spec = { type: 'openai', baseUrl: url, model: 'm', ...more }
  const { a } = parseAgentsFile({ agents: { a: spec } }, { KEY }).agents
  if (a?.type !== 'openai') throw new Error('expected an openai agent')
  return createOpenAiAgent(a, {
    outbound: { allow: [], openMode: true },
    log: pino({ level: 'silent' }),
  })
}

const failureOf = (promise: Promise<unknown>) =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  )

test('the request is the conversation, with the operator’s words and the front end’s tools', async () => {
  await using upstream = await scriptedUpstream({ body: Buffer.from(ANSWER) })
  const run = recordedRun({
    context: [{ description: 'page', value: '/' }],
    tools: [{ name: 'open', description: 'opens' }],
  })
  const agent = agentAt(upstream.url, {
    apiKey: '${KEY}',
    system: 'Be brief.',
    headers: { 'X-User': '{tenant}/{user}' },
    parameters: { temperature: 0, stream_options: null },
  })
  expect(await agent.run(run)).toEqual({ outcome: 'success' })
  const [request] = upstream.requests
  expect(request?.url).toBe('/agent/chat/completions?x=1')
  expect(request?.headers).toMatchObject({
    authorization: `Bearer ${KEY}`,
    'x-user': 'tenant/user',
    'accept-encoding': 'identity',
  })
  expect(JSON.parse(request?.body ?? '')).toEqual({
    model: 'm',
    messages: [
      { role: 'system', content: 'Be brief.\n\nContext of the application:\npage: /' },
      { role: 'user', content: 'hello' },
    ],
    stream: true,
    tools: [
      {
        type: 'function',
        function: {
          name: 'open',
          description: 'opens',
          parameters: { type: 'object', properties: {} },
        },
      },
    ],
    temperature: 0,
  })
})

test('a key that the server repeats is in no failure', async () => {
  for (const body of [`Incorrect API key: ${KEY}`, `data: {"error":"bad key ${KEY}"}\n\n`]) {
    const status = body.startsWith('data:') ? 200 : 401
    await using upstream = await scriptedUpstream({ status, body: Buffer.from(body) })
    const failure = await failureOf(agentAt(upstream.url, { apiKey: KEY }).run(recordedRun()))
    expect(failure).toMatchObject({ code: 'upstream_error' })
    expect((failure as Error).message).toContain('[redacted]')
    expect(`${(failure as Error).stack}`).not.toContain(KEY)
  }
})

test('a model that never stops calling is stopped, and is told to answer before', async () => {
  const body = Buffer.from(
    chunk({ tool_calls: [{ index: 0, id: 'c1', function: { name: 'x', arguments: '{' } }] }) +
      chunk({}, 'tool_calls'),
  )
  await using upstream = await scriptedUpstream({ body })
  const run = recordedRun({ tools: [{ name: 'open', description: 'opens' }] })
  const failure = await failureOf(agentAt(upstream.url, { maxSteps: 3 }).run(run))
  expect(failure).toMatchObject({ code: 'limit_exceeded', retryable: false })
  const bodies = upstream.requests.map((request) => JSON.parse(request.body))
  expect(bodies.map(({ tool_choice }) => tool_choice)).toEqual([undefined, undefined, 'none'])
  const { messages } = bodies[2]
  expect(messages.map(({ role }: { role: string }) => role)).toEqual([
    'user',
    'assistant',
    'tool',
    'assistant',
    'tool',
  ])
  const ids = messages.flatMap((message: { tool_call_id?: string }) => message.tool_call_id ?? [])
  expect(new Set(ids).size).toBe(2)
})

const stages: [string, Script][] = [
  ['before the answer', { status: 0, ending: 'hang' }],
  ['after its head', { ending: 'hang' }],
  ['between chunks', { body: Buffer.from(chunk({ content: 'Hi' })), ending: 'hang' }],
]

test.each(stages)(
  'an abort %s ends the attempt at once, with its socket closed',
  async (_, script) => {
    const reached = Promise.withResolvers<void>()
    await using upstream = await scriptedUpstream({ ...script, onWritten: reached.resolve })
    const run = recordedRun()
    const failed = failureOf(agentAt(upstream.url).run(run))
    await reached.promise
    if (script.body) await run.emitted(2)
    const reason = new Error('cancel')
    run.abort.abort(reason)
    expect(await failed).toBe(reason)
    run.expectNoListeners()
    await upstream.allClosed()
  },
)

test('only the newest turns go to a model with a small context', async () => {
  await using upstream = await scriptedUpstream({ body: Buffer.from(ANSWER) })
  const messages = [
    { id: 'u1', role: 'user' as const, content: 'long '.repeat(500) },
    { id: 'a1', role: 'assistant' as const, content: 'yes' },
    { id: 'u2', role: 'user' as const, content: 'and?' },
  ]
  await agentAt(upstream.url, { contextTokens: 100 }).run(recordedRun({ messages }))
  expect(JSON.parse(upstream.requests[0]?.body ?? '').messages).toEqual([
    { role: 'user', content: 'and?' },
  ])
})

const TEXT = ['TEXT_MESSAGE_START', 'TEXT_MESSAGE_CONTENT', 'TEXT_MESSAGE_END']
const SAVED = {
  earlier: [],
  rounds: [
    {
      messageId: 'run.1.m1',
      text: 'Let me look.',
      finishReason: 'tool_calls',
      calls: [{ id: 'c1', name: 'clock__now', arguments: '{}', result: 'noon' }],
    },
  ],
  usage: [{ model: 'm', inputTokens: 5 }],
}

test('an attempt goes on from a checkpoint, and says again only what was withdrawn', async () => {
  await using upstream = await scriptedUpstream({ body: Buffer.from(ANSWER) })
  const usedIds = new Set(['run.1.m1', 'c1'])
  const saved = { data: SAVED, sequence: 9, current: true }
  const current = recordedRun({ epoch: 2, usedIds, saved })
  expect(await agentAt(upstream.url).run(current)).toMatchObject({ usage: SAVED.usage })
  expect(current.events.map(({ type }) => type)).toEqual(TEXT)
  const behind = recordedRun({ epoch: 2, usedIds, saved: { ...saved, current: false } })
  await agentAt(upstream.url).run(behind)
  expect(behind.events.map(({ type }) => type)).toEqual([
    ...TEXT,
    'TOOL_CALL_START',
    'TOOL_CALL_ARGS',
    'TOOL_CALL_END',
    'TOOL_CALL_RESULT',
    ...TEXT,
  ])
  expect(JSON.stringify(behind.events)).not.toMatch(/"c1"|run\.1\.m1/)
  const [first, second] = upstream.requests.map(({ body }) => JSON.parse(body).messages)
  expect(first).toMatchObject([
    { role: 'user' },
    { role: 'assistant', content: 'Let me look.', tool_calls: [{ id: 'c1' }] },
    { role: 'tool', tool_call_id: 'c1', content: 'noon' },
  ])
  expect(second).toHaveLength(3)
})
