// Goal: what a run asks is listed until it is answered, answered once and all together, and never left open. Method: the
// demo agent asks, over REST; a scripted upstream asks what expires and shows what an agent is told.
import { randomUUID } from 'node:crypto'
import type { AgUiEvent, Message } from '@holdfast/protocol'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readEvents, readLog, request, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { stockClientHolds } from '../support/stock-clients.ts'
import { type Exchange, opening, startUpstream, type Upstream } from '../support/upstream.ts'

type View = {
  messages: { turn: number; index: number; runId: string; status: string; message: Message }[]
  pendingInterrupts: { id: string; runId: string; toolCallId?: string; message?: string }[]
}

const TOOLS = [{ name: 'pick_colour', description: 'Lets the user pick', parameters: {} }]

let upstream: Upstream
let holdfast: Holdfast

beforeAll(async () => {
  upstream = await startUpstream()
  holdfast = await startHoldfast({
    agents: {
      default: 'demo',
      agents: { demo: { type: 'demo' }, remote: { type: 'ag-ui', url: upstream.url } },
    },
  })
})

afterAll(async () => {
  await holdfast[Symbol.asyncDispose]()
  await upstream[Symbol.asyncDispose]()
})

test('an interrupt ends the run, is listed after a reload, and its answer starts the next', async () => {
  const { runId, conversationId } = await asked('/ask Which colour?')
  const [pending] = (await view(conversationId)).pendingInterrupts
  expect(pending).toMatchObject({ runId, reason: 'input_required', message: 'Which colour?' })
  expect((await request(`${holdfast.url}/runs/${runId}`)).body).toMatchObject({
    state: 'succeeded',
    outcome: 'interrupt',
  })
  const answer = { interruptId: pending?.id, status: 'resolved', payload: { colour: 'red' } }
  const next = await post({ conversationId, resume: [answer] })
  expect(next.status).toBe(202)
  expect(await textOfRun(next.body['runId'])).toContain('You answered {"colour":"red"}.')
  const after = await view(conversationId)
  expect(after.pendingInterrupts).toEqual([])
  expect(after.messages.map(({ turn, index }) => [turn, index])).toEqual([
    [1, 0],
    [1, 1],
    [2, 0],
  ])
  await foldsAlike(conversationId, String(next.body['runId']))
})

test('of answers that come at once, one counts; the same turn again is its run', async () => {
  const { conversationId } = await asked('/ask Now?')
  const [pending] = (await view(conversationId)).pendingInterrupts
  const resume = [{ interruptId: pending?.id, status: 'resolved', payload: 1 }]
  const bodies = Array.from({ length: 4 }, () => ({
    conversationId,
    resume,
    clientTurnId: randomUUID(),
  }))
  const answers = await Promise.all(bodies.map((body) => post(body)))
  const statuses = answers.map(({ status }) => status)
  expect(statuses.toSorted((a, b) => a - b)).toEqual([202, 409, 409, 409])
  for (const { status, body } of answers) {
    if (status === 409) expect(body).toMatchObject({ code: 'interrupt_closed', ids: [pending?.id] })
  }
  const won = answers.findIndex(({ status }) => status === 202)
  const again = await post(bodies[won] ?? {})
  expect([again.status, again.body['runId']]).toEqual([200, answers[won]?.body['runId']])
  const other = await post({ ...bodies[won], resume: [{ ...resume[0], payload: 2 }] })
  expect([other.status, other.body['code']]).toEqual([422, 'turn_mismatch'])
  await readLog(holdfast.url, String(again.body['runId']))
})

test('a call that is approved gets its result from the agent, and one that is not is interrupted', async () => {
  for (const [status, content] of [
    ['resolved', '{"done":true}'],
    ['cancelled', 'interrupted'],
  ]) {
    const { conversationId } = await asked('/approve the garden')
    const [pending] = (await view(conversationId)).pendingInterrupts
    expect(pending?.toolCallId).toEqual(expect.any(String))
    const next = await post({ conversationId, resume: [{ interruptId: pending?.id, status }] })
    await readLog(holdfast.url, String(next.body['runId']))
    expect(await resultsOf(conversationId)).toEqual([[pending?.toolCallId, content]])
    await foldsAlike(conversationId, String(next.body['runId']))
  }
})

test('a plain message cancels what is pending and answers its calls, in one transaction', async () => {
  const { conversationId } = await asked('/approve the garden')
  const { runId } = await send(holdfast.url, 'never mind', { conversationId })
  const [started] = await readLog(holdfast.url, runId)
  expect(started?.event).toMatchObject({
    type: 'RUN_STARTED',
    input: {
      messages: [
        { role: 'tool', content: 'interrupted' },
        { role: 'user', content: 'never mind' },
      ],
    },
  })
  const { pendingInterrupts, messages } = await view(conversationId)
  expect(pendingInterrupts).toEqual([])
  expect(
    messages.filter(({ turn }) => turn === 2).map(({ index, message }) => [index, message.role]),
  ).toEqual([
    [0, 'tool'],
    [1, 'user'],
    [2, 'assistant'],
  ])
  await foldsAlike(conversationId, runId)
})

test('a turn that waits behind one that asks cancels what it asks', async () => {
  const first = await send(holdfast.url, '/slow 1 /approve the garden')
  const { conversationId } = first
  const second = await send(holdfast.url, 'and now?', { conversationId, onActive: 'enqueue' })
  await readLog(holdfast.url, first.runId)
  await readLog(holdfast.url, second.runId)
  expect((await view(conversationId)).pendingInterrupts).toEqual([])
  expect((await resultsOf(conversationId)).map(([, content]) => content)).toEqual(['interrupted'])
})

test('a turn that was stopped before its time took nothing of what the turn before it asks', async () => {
  const asking = upstream.exchanges.length
  const first = await send(holdfast.url, 'wait', { agent: 'remote' })
  const { conversationId } = first
  const exchange = await upstream.exchange(asking)
  const second = await send(holdfast.url, 'too soon', { conversationId, onActive: 'enqueue' })
  await request(`${holdfast.url}/runs/${second.runId}/cancel`, { json: {} })
  asks(exchange, [{ id: 'still', reason: 'input_required' }])
  await readLog(holdfast.url, first.runId)
  expect((await view(conversationId)).pendingInterrupts).toMatchObject([
    { id: 'still', runId: first.runId },
  ])
  const resume = [{ interruptId: 'still', status: 'resolved' }]
  expect((await post({ conversationId, resume })).status).toBe(202)
})

test("a front end's tool is called, answered by the front end, and the next turn knows the answer", async () => {
  const { conversationId, runId } = await asked('/call pick_colour {"of":"door"}', { tools: TOOLS })
  const log = await readLog(holdfast.url, runId)
  const called = log.find(({ event }) => event.type === 'TOOL_CALL_START')?.event
  const { toolCallId } = called as AgUiEvent & { toolCallId: string }
  expect(log.at(-1)?.event).toMatchObject({
    outcome: { type: 'success', pendingToolCallIds: [toolCallId] },
  })
  const wrong = await post({ conversationId, toolResults: [{ toolCallId: 'x', content: '' }] })
  expect([wrong.status, wrong.body['code']]).toEqual([409, 'interrupt_closed'])
  const toolResults = [{ toolCallId, content: 'green' }]
  const next = await post({ conversationId, toolResults })
  expect(next.status).toBe(202)
  expect(await textOfRun(next.body['runId'])).toContain('said "green"')
  expect(await resultsOf(conversationId)).toEqual([[toolCallId, 'green']])
  const late = await post({ conversationId, toolResults })
  expect([late.status, late.body['code']]).toEqual([409, 'interrupt_closed'])
  await foldsAlike(conversationId, String(next.body['runId']))
})

test('all that is pending is answered together, what has expired can only be cancelled', async () => {
  const { conversationId, runId } = await send(holdfast.url, 'ask', { agent: 'remote' })
  const expired = new Date(Date.now() - 1000).toISOString()
  asks(await upstream.exchange(upstream.exchanges.length), [
    { id: 'a', reason: 'confirmation' },
    { id: 'b', reason: 'confirmation', expiresAt: new Date(Date.now() + 3_600_000).toISOString() },
    { id: 'old', reason: 'confirmation', expiresAt: expired },
  ])
  await readLog(holdfast.url, runId)
  const ids = async () => (await view(conversationId)).pendingInterrupts.map(({ id }) => id)
  expect(await ids()).toEqual(['a', 'b'])
  const resolved = (id: string) => ({ interruptId: id, status: 'resolved', payload: { id } })
  for (const [resume, status, code, named] of [
    [[resolved('a')], 422, 'answers_incomplete', ['b']],
    [[resolved('a'), resolved('b'), resolved('a')], 422, 'answers_incomplete', ['a']],
    [[resolved('a'), resolved('b'), resolved('old')], 409, 'interrupt_closed', ['old']],
    [[resolved('a'), resolved('b'), resolved('c')], 409, 'interrupt_closed', ['c']],
  ] as const) {
    const refused = await post({ conversationId, resume })
    expect([refused.status, refused.body['code'], refused.body['ids']]).toEqual([
      status,
      code,
      named,
    ])
  }
  expect(await ids()).toEqual(['a', 'b'])
  const next = await post({ conversationId, resume: [resolved('b'), resolved('a')] })
  const exchange = await upstream.exchange(upstream.exchanges.length)
  expect(exchange.input.resume).toEqual([
    resolved('a'),
    resolved('b'),
    { interruptId: 'old', status: 'cancelled' },
  ])
  exchange.say(...opening(exchange, 'thank you'))
  exchange.finish()
  const nextId = String(next.body['runId'])
  expect(await runOf(nextId)).toMatchObject({ agent: 'remote' })
  await readLog(holdfast.url, nextId)
})

test.each([
  [{ resume: [{ interruptId: 'i', status: 'resolved' }] }, 'conversationId'],
  [{ toolResults: [{ toolCallId: 'c', content: 'x' }] }, 'conversationId'],
  [{ resume: [{ interruptId: 'i', status: 'maybe' }], conversationId: 'x' }, 'resume.0.status'],
  [{ toolResults: [{ content: 'x' }], conversationId: 'x' }, 'toolResults.0.toolCallId'],
  [{ resume: [] }, 'message'],
])('400 for %j, which names %s', async (body, path) => {
  const refused = await post(body)
  expect(refused).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
  expect(refused.body['errors']).toContainEqual(expect.objectContaining({ path }))
})

/** A turn of its own conversation that has ended by asking. */
async function asked(message: string, more: Record<string, unknown> = {}) {
  const sent = await send(holdfast.url, message, more)
  await readLog(holdfast.url, sent.runId)
  return sent
}

async function post(body: Record<string, unknown>) {
  return await request(`${holdfast.url}/runs`, { json: { clientTurnId: randomUUID(), ...body } })
}

async function view(conversationId: string): Promise<View> {
  const { body } = await request(`${holdfast.url}/conversations/${conversationId}`)
  return body as unknown as View
}

async function runOf(runId: string) {
  return (await request(`${holdfast.url}/runs/${runId}`)).body
}

async function textOfRun(runId: unknown): Promise<string> {
  const log = await readLog(holdfast.url, String(runId))
  return log.map(({ event }) => (event.type === 'TEXT_MESSAGE_CONTENT' ? event.delta : '')).join('')
}

/** Of each stored tool message, its call and what it says. */
async function resultsOf(conversationId: string) {
  const { messages } = await view(conversationId)
  return messages.flatMap(({ message }) =>
    message.role === 'tool' ? [[message.toolCallId, message.content]] : [],
  )
}

/** What a stock client holds that saw every log of the conversation, or only the last prelude, is what is stored. */
async function foldsAlike(conversationId: string, lastRunId: string) {
  const { messages } = await view(conversationId)
  const stored = messages.map(({ message }) => message)
  const runIds = [...new Set([...messages.map(({ runId }) => runId), lastRunId])]
  let held: Message[] = []
  for (const runId of runIds) {
    const log = await readLog(holdfast.url, runId)
    const events = log.map(({ event }) => event)
    held = (await stockClientHolds(events, { messages: held })).messages
  }
  expect(held).toEqual(stored)
  const prelude = await readEvents(holdfast.url, lastRunId)
  const joined = await stockClientHolds(prelude.map(({ event }) => event))
  expect(joined.messages).toEqual(stored)
}

function asks(exchange: Exchange, interrupts: object[]) {
  const { threadId, runId } = exchange.input
  const outcome = { type: 'interrupt', interrupts }
  exchange.say(
    { type: 'RUN_STARTED', threadId, runId } as AgUiEvent,
    { type: 'RUN_FINISHED', threadId, runId, outcome } as AgUiEvent,
  )
}
