// Goal: AG-UI's own client, as it is, talks to Holdfast as to any agent, and loses nothing when its
// connections are lost. Method: HttpAgent on POST /ag-ui/{agent}, through a proxy that cuts.
import { randomUUID } from 'node:crypto'
import { HttpAgent } from '@ag-ui/client'
import type { AgUiEvent, Message } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { isTerminalEvent, readLog, request, send } from '../support/api.ts'
import { startCuttingProxy } from '../support/cutting-proxy.ts'
import { startHoldfast } from '../support/holdfast.ts'
import { textOf } from '../support/readers.ts'
import { losingFetch, resumingFetch } from '../support/stock-clients.ts'

type Conversation = {
  conversationId: string
  externalId: string
  messages: { turn: number; runId: string; status: string; message: Message }[]
  state: unknown
}

test('two turns of a stock client: the thread is ours, and so is its history', async () => {
  await using holdfast = await startHoldfast()
  const agent = new HttpAgent({ url: `${holdfast.url}/ag-ui/demo`, threadId: 'thread of mine' })
  const started: AgUiEvent[] = []
  agent.subscribe({ onRunStartedEvent: ({ event }) => void started.push(event) })
  agent.addMessage({ id: 'm1', role: 'user', content: 'first /think /tool tea' })
  await agent.runAgent({ runId: 'turn-1' })
  // What the client claims to remember is its own affair.
  agent.setMessages([{ id: 'm2', role: 'user', content: 'second' }])
  const { newMessages } = await agent.runAgent({ runId: 'turn-2' })
  expect(started).toMatchObject([
    { threadId: 'thread of mine', runId: 'turn-1' },
    { threadId: 'thread of mine', runId: 'turn-2' },
  ])
  expect(newMessages.at(-1)?.content).toMatch(/^This is turn 2 of our conversation\./)
  const conversation = await conversationOf(holdfast.url, 'thread of mine')
  expect(conversation.messages.filter(({ turn }) => turn === 2).map((row) => row.message)).toEqual(
    agent.messages,
  )
  expect(conversation.messages.map(({ message }) => message.id)).toContain('m1')
})

test('a stock client that is cut three times goes on in one pipeline, with the exact text', async () => {
  await using holdfast = await startHoldfast()
  await using proxy = await startCuttingProxy(holdfast.url, {
    cutAfterBytes: (connection) => (connection <= 3 ? 2500 : null),
  })
  const { fetch, connections } = resumingFetch((runId) => `${proxy.url}/runs/${runId}/events`)
  const agent = new HttpAgent({ url: `${proxy.url}/ag-ui/demo`, threadId: 'cut', fetch })
  const events: AgUiEvent[] = []
  agent.subscribe({ onEvent: ({ event }) => void events.push(event as AgUiEvent) })
  agent.addMessage({ id: 'm1', role: 'user', content: '/think /tool /state /activity /slow 1 go' })
  await agent.runAgent({ runId: 'turn-1' })
  expect(connections.length).toBeGreaterThanOrEqual(4)
  expect(connections[0]).toBeNull()
  const conversation = await conversationOf(holdfast.url, 'cut')
  const runIds = new Set(conversation.messages.map(({ runId }) => runId))
  expect(runIds.size).toBe(1)
  const log = await readLog(holdfast.url, [...runIds][0] ?? '')
  expect(events).toEqual(log.map(({ event }) => event))
  expect(agent.messages).toEqual(conversation.messages.map(({ message }) => message))
  expect(agent.state).toEqual(conversation.state)
})

test('the question asked again after a lost stream joins its run, under any run id', async () => {
  await using holdfast = await startHoldfast()
  const { fetch } = losingFetch(4000)
  const agent = new HttpAgent({ url: `${holdfast.url}/ag-ui/demo`, threadId: 'again', fetch })
  agent.addMessage({ id: 'm1', role: 'user', content: '/slow 2 tell me a story' })
  await expect(agent.runAgent({ runId: 'turn-1' })).rejects.toThrow()
  const partial = agent.messages.at(-1)
  expect(partial).toMatchObject({ role: 'assistant' })
  expect(partial?.content).not.toBe('')
  // It sends its own messages, with what it has of the answer.
  await agent.runAgent({ runId: 'turn-1-again' })
  const late = new HttpAgent({
    url: `${holdfast.url}/ag-ui/demo`,
    threadId: 'again',
    initialMessages: [{ id: 'm1', role: 'user', content: '/slow 2 tell me a story' }],
  })
  await late.runAgent({ runId: 'turn-1-later' })
  const conversation = await conversationOf(holdfast.url, 'again')
  const stored = conversation.messages.map(({ message }) => message)
  expect(stored.map(({ role }) => role)).toEqual(['user', 'assistant'])
  expect(agent.messages).toEqual(stored)
  expect(late.messages).toEqual(stored)
  const { body } = await request(`${holdfast.url}/runs`)
  expect(body['runs']).toHaveLength(1)
})

test('what the page offers reaches the agent and is kept: tools, context, state', async () => {
  await using holdfast = await startHoldfast()
  const agent = new HttpAgent({
    url: `${holdfast.url}/ag-ui/demo`,
    threadId: 'page',
    initialState: { open: 'file.txt' },
  })
  agent.addMessage({ id: 'm1', role: 'user', content: 'hello /state' })
  const events: AgUiEvent[] = []
  agent.subscribe({ onEvent: ({ event }) => void events.push(event as AgUiEvent) })
  await agent.runAgent({
    runId: 'turn-1',
    tools: [{ name: 'confirm', description: 'asks', parameters: { type: 'object' } }],
    context: [
      { description: 'city', value: 'Lisbon' },
      { description: 'page', value: 'invoice' },
    ],
    forwardedProps: { theme: 'dark' },
  })
  const text = textOf(events)
  expect(text).toContain('Your page offers 1 tool.')
  expect(text).toContain('Your page told me 2 things about where we are.')
  const { state } = await conversationOf(holdfast.url, 'page')
  expect(state).toEqual({ open: 'file.txt', demo: { turn: 1, done: true } })
  expect(agent.state).toEqual(state)
})

test('cancel by thread stops the run, and the client is told so in its stream', async () => {
  await using holdfast = await startHoldfast()
  const agent = new HttpAgent({ url: `${holdfast.url}/ag-ui/demo`, threadId: 'stop' })
  agent.addMessage({ id: 'm1', role: 'user', content: '/slow 60 a long story' })
  const events: AgUiEvent[] = []
  const spoke = Promise.withResolvers<void>()
  agent.subscribe({
    onEvent: ({ event }) => void events.push(event as AgUiEvent),
    onTextMessageContentEvent: () => spoke.resolve(),
  })
  const run = agent.runAgent({ runId: 'turn-1' })
  await spoke.promise
  const cancel = await request(`${holdfast.url}/ag-ui/demo/cancel`, { json: { threadId: 'stop' } })
  expect(cancel.status).toBe(202)
  await run
  expect(events.at(-1)).toMatchObject({ type: 'RUN_FINISHED', outcome: { type: 'cancelled' } })
  const { messages } = await conversationOf(holdfast.url, 'stop')
  expect(messages[1]).toMatchObject({
    status: 'partial',
    message: { role: 'assistant', content: textOf(events) },
  })
  expect(textOf(events)).not.toBe('')
})

test('leaving does not stop the run, and a new turn on the busy thread replaces it', async () => {
  await using holdfast = await startHoldfast()
  const agent = new HttpAgent({ url: `${holdfast.url}/ag-ui/demo`, threadId: 'busy' })
  agent.addMessage({ id: 'm1', role: 'user', content: '/slow 60 a long story' })
  agent.subscribe({ onTextMessageContentEvent: () => agent.abortRun() })
  await agent.runAgent({ runId: 'turn-1' })
  const { conversationId } = await conversationOf(holdfast.url, 'busy')
  const { body } = await request(`${holdfast.url}/runs?conversationId=${conversationId}`)
  expect(body['runs']).toMatchObject([{ state: 'running' }])
  const next = new HttpAgent({ url: `${holdfast.url}/ag-ui/demo`, threadId: 'busy' })
  next.addMessage({ id: 'm2', role: 'user', content: 'something else' })
  await next.runAgent({ runId: 'turn-2' })
  const after = await request(`${holdfast.url}/runs?conversationId=${conversationId}`)
  expect(after.body['runs']).toMatchObject([{ state: 'succeeded' }, { state: 'stopped' }])
})

test('POST /runs takes the stock client as well, and sends an event reader on to the events', async () => {
  await using holdfast = await startHoldfast()
  const agent = new HttpAgent({ url: `${holdfast.url}/runs`, threadId: 'runs' })
  agent.addMessage({ id: 'm1', role: 'user', content: 'hello' })
  await agent.runAgent({ runId: 'turn-1' })
  const { messages } = await conversationOf(holdfast.url, 'runs')
  expect(agent.messages).toEqual(messages.map(({ message }) => message))
  const turn = { message: 'hello', clientTurnId: randomUUID() }
  const accept = { accept: 'text/event-stream' }
  const sent = await request(`${holdfast.url}/runs`, { json: turn, headers: accept })
  expect(sent.status).toBe(303)
  const events = new URL(sent.headers.get('location') ?? '', holdfast.url)
  expect(events.pathname).toBe(`/runs/${sent.headers.get('x-holdfast-run-id')}/events`)
  // The stock client's fetch follows it, which makes a GET of the POST.
  const followed = new HttpAgent({
    url: `${holdfast.url}/runs`,
    fetch: (url, init) => fetch(url, { ...init, body: JSON.stringify(turn) }),
  })
  const ended: AgUiEvent[] = []
  followed.subscribe({ onEvent: ({ event }) => void ended.push(event as AgUiEvent) })
  await followed.runAgent()
  expect(ended.at(-1)).toSatisfy(isTerminalEvent)
  expect(followed.messages.map(({ role }) => role)).toEqual(['user', 'assistant'])
})

test('a thread of our own making can be continued by a stock client', async () => {
  await using holdfast = await startHoldfast()
  const { runId, conversationId } = await send(holdfast.url, 'hello')
  await readLog(holdfast.url, runId)
  const agent = new HttpAgent({ url: `${holdfast.url}/ag-ui/demo`, threadId: conversationId })
  agent.addMessage({ id: 'm2', role: 'user', content: 'and on' })
  await agent.runAgent({ runId: 'turn-2' })
  const { messages } = await conversationOf(holdfast.url, conversationId)
  expect(messages.map(({ turn }) => turn)).toEqual([1, 1, 2, 2])
})

async function conversationOf(url: string, threadId: string): Promise<Conversation> {
  const { body } = await request(`${url}/conversations`)
  const all = body['conversations'] as { conversationId: string; externalId: string }[]
  const [found, ...others] = all.filter(({ externalId }) => externalId === threadId)
  if (!found || others.length) throw new Error(`${threadId} names ${others.length + 1} of them`)
  return (await request(`${url}/conversations/${found.conversationId}`)).body as Conversation
}
