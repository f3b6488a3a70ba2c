// Goal: a model's tool calls reach MCP servers and come back, whatever the server is and does. Method: the protocol's
// own sample server over both transports, and one whose answers the test gives; a stand-in for the model.
import type { ChildProcess } from 'node:child_process'
import type { Message } from '@holdfast/protocol'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { request, send } from '../support/api.ts'
import { checkAll, checkRun } from '../support/checker.ts'
import { EVERYTHING, startEverythingServer } from '../support/everything-server.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { startToolServer, type ToolServer } from '../support/tool-server.ts'

const call = (name: string, given: object = {}) => ({ name, arguments: JSON.stringify(given) })

const SCRIPTS = [
  { when: 'add', calls: [call('child__get-sum', { a: 2, b: 3 })], says: 'Five.' },
  {
    when: 'both',
    calls: [call('child__echo', { message: 'one' }), call('remote__echo', { message: 'two' })],
    says: 'Done.',
  },
  {
    when: 'wrong',
    calls: [call('child__get-sum', { a: 'x' }), call('child__nothing'), call('child__echo', [])],
    says: 'Sorry.',
  },
  { when: 'slow', calls: [call('tools__pay')], says: 'Too slow.' },
  { when: 'pay', calls: [call('tools__pay', { amount: 1 })], says: 'Paid.' },
  { when: 'look', calls: [call('tools__look')], says: 'Seen.' },
  { when: 'show and approve', calls: [call('show'), call('tools__pay')], says: 'Paid.' },
  { when: 'approve', calls: [call('tools__pay')], says: 'Paid.' },
]

let model: ModelServer
let tools: ToolServer
let remote: { url: string; child: ChildProcess }
let holdfast: Holdfast

beforeAll(async () => {
  model = await startModelServer({ scripts: SCRIPTS })
  tools = await startToolServer()
  remote = await startEverythingServer()
  const openai = { type: 'openai', baseUrl: model.url, model: 'scripted' }
  const headers = { 'x-user': '{tenant}/{user}' }
  holdfast = await startHoldfast({
    agents: {
      default: 'assistant',
      agents: {
        assistant: {
          ...openai,
          mcpServers: {
            child: { command: process.execPath, args: [EVERYTHING, 'stdio'] },
            remote: { url: remote.url },
          },
        },
        payer: { ...openai, mcpServers: { tools: { url: tools.url, headers } } },
        hasty: { ...openai, toolTimeoutMs: 300, mcpServers: { tools: { url: tools.url } } },
        careful: {
          ...openai,
          tools: { tools__pay: { approval: true } },
          mcpServers: { tools: { url: tools.url } },
        },
      },
    },
  })
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await tools?.[Symbol.asyncDispose]()
  remote?.child.kill('SIGKILL')
  await model?.stop()
})

/** Of each message of the run: what its tools answered, or its text. */
async function conversationOf(runId: string) {
  const checked = await checkRun(holdfast.url, runId)
  const messages = checked.messages.map(({ message }) => message)
  return { ...checked, results: messages.filter((message) => message.role === 'tool').map(textOf) }
}

function textOf(message: Message): string {
  return typeof message.content === 'string' ? message.content : JSON.stringify(message.content)
}

test('a tool of a child process is called, and the model speaks about its result', async () => {
  const { runId } = await send(holdfast.url, 'add two and three')
  const { run, text, results } = await conversationOf(runId)
  expect(run).toMatchObject({ outcome: 'success' })
  expect(results).toEqual(['The sum of 2 and 3 is 5.'])
  expect(text).toBe('Five.')
  const [asked] = model.requests().slice(-1)
  expect(asked?.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool'])
  expect(asked?.[1]?.tool_calls?.[0]?.id).toBe(asked?.[2]?.tool_call_id)
})

test('calls of one answer are made at once, over both transports', async () => {
  const { runId } = await send(holdfast.url, 'both please')
  const { results, text } = await conversationOf(runId)
  expect(results.toSorted()).toEqual(['Echo: one', 'Echo: two'])
  expect(text).toBe('Done.')
})

test('what goes wrong with a call is its result', async () => {
  const { runId } = await send(holdfast.url, 'wrong please')
  const { run, results } = await conversationOf(runId)
  expect(run).toMatchObject({ outcome: 'success' })
  expect(results).toHaveLength(3)
  expect(results.filter((text) => /invalid/i.test(text))).toHaveLength(1)
  expect(results).toContain('Error: there is no tool child__nothing.')
  expect(results).toContain('Error: the arguments are not a JSON object. The tool was not called.')
})

test('a tool that does not answer in time is told so, and the model too', async () => {
  const before = tools.calls.length
  const { runId } = await send(holdfast.url, 'slow please', { agent: 'hasty' })
  const slow = await tools.call(before)
  await slow.cancelled
  await slow.closed
  const { results, text } = await conversationOf(runId)
  expect(results).toEqual([
    'Error: the tool did not answer in time. Whether it did its work is not known.',
  ])
  expect(text).toBe('Too slow.')
})

test('each user has a session of their own, and each call says whose it is and which', async () => {
  const before = tools.calls.length
  const { runId } = await send(holdfast.url, 'pay one', { agent: 'payer' })
  const paying = await tools.call(before)
  expect(paying).toMatchObject({
    arguments: { amount: 1 },
    headers: { 'x-user': 'dev/dev' },
    meta: {
      'holdfast/idempotencyKey': expect.stringContaining(runId),
      'holdfast/tenant': 'dev',
      'holdfast/user': 'dev',
    },
  })
  paying.answer('ok')
  expect((await conversationOf(runId)).results).toEqual(['ok'])
})

test('a server that was restarted is found again by the next call', async () => {
  const first = await send(holdfast.url, 'look once', { agent: 'payer' })
  const before = tools.calls.length
  ;(await tools.call(before)).answer('a tree')
  expect((await conversationOf(first.runId)).results).toEqual(['a tree'])
  const sessions = tools.sessions
  tools.restart()
  const second = await send(holdfast.url, 'look twice', { agent: 'payer' })
  ;(await tools.call(before + 1)).answer('a house')
  expect((await conversationOf(second.runId)).results).toEqual(['a house'])
  expect(tools.sessions).toBe(sessions + 1)
})

test('a connection that breaks in mid-call is a result, and a harmless call is made once more', async () => {
  const before = tools.calls.length
  const paying = await send(holdfast.url, 'pay one', { agent: 'payer' })
  await tools.call(before)
  tools.restart()
  expect((await conversationOf(paying.runId)).results).toEqual([
    'Error: the connection to the tool broke. Whether it did its work is not known.',
  ])
  expect(tools.calls).toHaveLength(before + 1)
  const looking = await send(holdfast.url, 'look once', { agent: 'payer' })
  const first = await tools.call(before + 1)
  tools.restart()
  const second = await tools.call(before + 2)
  expect(second.meta).toEqual(first.meta)
  second.answer('a tree')
  expect((await conversationOf(looking.runId)).results).toEqual(['a tree'])
})

/** A run that ends by asking whether its call may be made. */
async function sendForApproval() {
  const { runId, conversationId } = await send(holdfast.url, 'approve it', { agent: 'careful' })
  const { run, log } = await checkRun(holdfast.url, runId)
  expect(run).toMatchObject({ outcome: 'interrupt' })
  const [call] = log.flatMap(({ event }) => (event.type === 'TOOL_CALL_START' ? [event] : []))
  const { body } = await request(`${holdfast.url}/conversations/${conversationId}`)
  const [interrupt] = body['pendingInterrupts'] as { id: string; toolCallId: string }[]
  expect(interrupt?.toolCallId).toBe(call?.toolCallId)
  return { conversationId, interruptId: interrupt?.id }
}

test('a call that needs approval ends the run, and is made by the run that brings the approval', async () => {
  const before = tools.calls.length
  const { conversationId, interruptId } = await sendForApproval()
  expect(tools.calls).toHaveLength(before)
  const resume = [{ interruptId, status: 'resolved', payload: { approved: true } }]
  const { runId } = await send(holdfast.url, undefined, {
    conversationId,
    resume,
    agent: 'careful',
  })
  ;(await tools.call(before)).answer('receipt')
  const { results, text, run } = await conversationOf(runId)
  expect(run).toMatchObject({ outcome: 'success' })
  expect(text).toBe('Paid.')
  expect(results).toEqual(['receipt'])
  const [asked] = model.requests().slice(-1)
  expect(asked?.map(({ role, content }) => [role, content])).toEqual([
    ['user', 'approve it'],
    ['assistant', null],
    ['tool', 'receipt'],
  ])
})

test('a call of the front end beside it that nobody answered is interrupted, and not called refused', async () => {
  const before = tools.calls.length
  const { runId, conversationId } = await send(holdfast.url, 'show and approve', {
    agent: 'careful',
    tools: [{ name: 'show', description: 'shows it', parameters: { type: 'object' } }],
  })
  await checkRun(holdfast.url, runId)
  const { body } = await request(`${holdfast.url}/conversations/${conversationId}`)
  const [interrupt] = body['pendingInterrupts'] as { id: string }[]
  const resume = [{ interruptId: interrupt?.id, status: 'resolved', payload: { approved: true } }]
  const resumed = await send(holdfast.url, undefined, { conversationId, resume, agent: 'careful' })
  ;(await tools.call(before)).answer('receipt')
  expect((await conversationOf(resumed.runId)).results).toEqual(['interrupted', 'receipt'])
})

test('a call that is not approved is not made, and the model is told', async () => {
  const before = tools.calls.length
  const { conversationId, interruptId } = await sendForApproval()
  const resume = [{ interruptId, status: 'resolved', payload: { approved: false } }]
  const { runId } = await send(holdfast.url, undefined, {
    conversationId,
    resume,
    agent: 'careful',
  })
  const { results } = await conversationOf(runId)
  expect(results).toEqual(['Not called: the user did not approve it.'])
  expect(tools.calls).toHaveLength(before)
})
