// Goal: AG-UI's own client answers interrupts and front-end tools of ours as of any agent. Method: HttpAgent as it is,
// against the demo agent; what it holds in the end is what is stored.
import { HttpAgent } from '@ag-ui/client'
import type { Message } from '@holdfast/protocol'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { request } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'

const tools = [{ name: 'pick_colour', description: 'Lets the user pick', parameters: {} }]

let holdfast: Holdfast

beforeAll(async () => {
  holdfast = await startHoldfast()
})

afterAll(() => holdfast[Symbol.asyncDispose]())

test('a stock client runs its tool, sends the result behind its history, and goes on', async () => {
  const agent = client('tools')
  agent.addMessage({ id: 'm1', role: 'user', content: '/call pick_colour {}' })
  await agent.runAgent({ runId: 'tools-1', tools })
  const call = agent.messages.flatMap((message) =>
    message.role === 'assistant' ? (message.toolCalls ?? []) : [],
  )[0]
  agent.addMessage({ id: 'mine', role: 'tool', toolCallId: call?.id ?? '', content: 'green' })
  const { newMessages } = await agent.runAgent({ runId: 'tools-2', tools })
  expect(newMessages.at(-1)?.content).toContain('said "green"')
  expect(agent.messages).toEqual(await stored('tools'))
  // The same history again, as after a lost stream, under another id: it joins that run.
  const again = client('tools', agent.messages.slice(0, -1))
  await again.runAgent({ runId: 'tools-3', tools })
  expect(again.messages).toEqual(await stored('tools'))
})

test('a stock client that says something new behind its tool result sends both', async () => {
  const agent = client('both')
  agent.addMessage({ id: 'm1', role: 'user', content: '/call pick_colour {}' })
  await agent.runAgent({ runId: 'both-1', tools })
  const call = agent.messages.flatMap((message) =>
    message.role === 'assistant' ? (message.toolCalls ?? []) : [],
  )[0]
  agent.addMessage({ id: 'mine', role: 'tool', toolCallId: call?.id ?? '', content: 'green' })
  agent.addMessage({ id: 'm2', role: 'user', content: 'and the door?' })
  await agent.runAgent({ runId: 'both-2', tools })
  const messages = await stored('both')
  expect(agent.messages).toEqual(messages)
  expect(messages.slice(-3).map(({ id, role }) => [id, role])).toEqual([
    ['mine', 'tool'],
    ['m2', 'user'],
    [expect.any(String), 'assistant'],
  ])
})

test('a stock client resumes an interrupt; one that says something else instead cancels it', async () => {
  const agent = client('resume')
  agent.addMessage({ id: 'm1', role: 'user', content: '/approve the garden' })
  await agent.runAgent({ runId: 'resume-1' })
  const [pending] = agent.pendingInterrupts
  const answer = { interruptId: pending?.id ?? '', status: 'resolved' as const, payload: 'yes' }
  await agent.runAgent({ runId: 'resume-2', resume: [answer] })
  expect(agent.pendingInterrupts).toEqual([])
  expect(agent.messages.at(-1)?.content).toContain('You answered "yes".')
  expect(agent.messages).toEqual(await stored('resume'))

  const other = client('resume', agent.messages)
  other.addMessage({ id: 'm2', role: 'user', content: '/ask Which?' })
  await other.runAgent({ runId: 'resume-3' })
  const [open] = other.pendingInterrupts
  const cancelled = { interruptId: open?.id ?? '', status: 'cancelled' as const }
  other.addMessage({ id: 'm3', role: 'user', content: 'never mind' })
  await other.runAgent({ runId: 'resume-4', resume: [cancelled] })
  expect(other.messages.at(-1)?.content).toMatch(/^This is turn 3 of our conversation/)
  expect(other.messages).toEqual(await stored('resume'))
  await expect(other.runAgent({ runId: 'resume-5', resume: [cancelled] })).rejects.toThrow(/409/)
})

test.each([
  ['with each other', 'same', 'same'],
  ['with a stored one', 'm1', 'm2'],
])('messages that share an id %s are refused, and leave no trace', async (_, resultId, saidId) => {
  const threadId = `shared-${saidId}`
  const agent = client(threadId)
  agent.addMessage({ id: 'm1', role: 'user', content: '/call pick_colour {}' })
  await agent.runAgent({ runId: `${threadId}-1`, tools })
  const before = await stored(threadId)
  const toolCallId = before.flatMap((message) =>
    message.role === 'assistant' ? (message.toolCalls ?? []) : [],
  )[0]?.id
  const messages = [
    { id: resultId, role: 'tool', toolCallId, content: 'green' },
    { id: saidId, role: 'user', content: 'and the door?' },
  ]
  const json = { threadId, runId: `${threadId}-2`, messages, tools, context: [], state: {} }
  const refused = await request(`${holdfast.url}/ag-ui/demo`, { json })
  expect([refused.status, refused.body['code']]).toEqual([400, 'invalid_request'])
  expect(await stored(threadId)).toEqual(before)
})

function client(threadId: string, initialMessages: Message[] = []): HttpAgent {
  return new HttpAgent({ url: `${holdfast.url}/ag-ui/demo`, threadId, initialMessages })
}

async function stored(threadId: string): Promise<Message[]> {
  const page = await request(`${holdfast.url}/conversations?limit=100`)
  const { conversations } = page.body as {
    conversations: { conversationId: string; externalId: string }[]
  }
  const found = conversations.find(({ externalId }) => externalId === threadId)
  const { body } = await request(`${holdfast.url}/conversations/${found?.conversationId}`)
  return (body['messages'] as { message: Message }[]).map(({ message }) => message)
}
