// Goal: an edited or regenerated turn hides what it replaces from histories and snapshots, and deletes nothing. Method: the
// demo agent, which counts the turns that it sees, over REST; one Holdfast of real processes.
import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readEvents, readLog, request, type Sent, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'

type View = {
  messages: { turn: number; runId: string; message: { content: string } }[]
  state: unknown
}

let holdfast: Holdfast

beforeAll(async () => {
  holdfast = await startHoldfast()
})

afterAll(() => holdfast[Symbol.asyncDispose]())

test('a turn that replaces another hides it and all behind it, and the agent sees none of them', async () => {
  const first = await turn('one')
  const { conversationId } = first
  const second = await turn('two', { conversationId })
  await turn('three', { conversationId })
  const edited = await turn('two, but better', { conversationId, replaces: second.runId })
  expect(await turns(conversationId)).toEqual([1, 4])
  expect(await said(edited)).toMatch(/^This is turn 2 of our conversation/)
  const prelude = JSON.stringify(await readEvents(holdfast.url, edited.runId))
  expect(prelude).not.toContain('three')
})

test('what was replaced is still there for whoever has its address, as it was', async () => {
  const first = await turn('one')
  const { conversationId } = first
  const second = await turn('two', { conversationId })
  const before = await readEvents(holdfast.url, second.runId)
  const again = await turn('one again', { conversationId, replaces: first.runId })
  expect(await readEvents(holdfast.url, second.runId)).toEqual(before)
  expect((await request(`${holdfast.url}/runs/${second.runId}`)).status).toBe(200)
  expect(await turns(conversationId)).toEqual([3])
  await turn('two again', { conversationId })
  expect(await turns(conversationId)).toEqual([3, 4])
  const third = await turn('one, once more', { conversationId, replaces: again.runId })
  expect(await turns(conversationId)).toEqual([5])
  expect(await said(third)).toMatch(/^This is turn 1 of our conversation/)
})

test('the state goes back to what the turns that are left had made of it', async () => {
  const first = await turn('/state one', { state: { mine: 1 } })
  const { conversationId } = first
  const second = await turn('/state two', { conversationId, state: { mine: 2 } })
  expect((await view(conversationId)).state).toMatchObject({ mine: 2 })
  const edited = await send(holdfast.url, 'two', { conversationId, replaces: second.runId })
  await readLog(holdfast.url, edited.runId)
  expect((await view(conversationId)).state).toMatchObject({ mine: 1 })
})

test('a running turn is replaced once it has been stopped, and leaves nothing behind', async () => {
  const slow = await send(holdfast.url, '/long 1000 /slow 60 /state', { state: { left: 'behind' } })
  const { conversationId, runId } = slow
  await readEvents(holdfast.url, runId, {
    after: 0,
    until: (frames) => frames.some(({ event }) => event.type === 'TEXT_MESSAGE_CONTENT'),
  })
  const busy = await post({ message: 'no', conversationId, replaces: runId })
  expect([busy.status, busy.body['code']]).toEqual([409, 'conversation_busy'])
  const edited = await turn('short', { conversationId, replaces: runId, onActive: 'cancel' })
  expect(await turns(conversationId)).toEqual([2])
  expect(await said(edited)).toMatch(/^This is turn 1 of our conversation/)
  expect((await view(conversationId)).state).toBeNull()
})

test('a run names its conversation; one of another conversation, or of nobody, is not found', async () => {
  const mine = await turn('mine')
  const edited = await turn('mine, edited', { replaces: mine.runId })
  expect(edited.conversationId).toBe(mine.conversationId)
  const other = await turn('another')
  for (const replaces of [other.runId, randomUUID(), 'x', '']) {
    const refused = await post({ message: 'no', conversationId: mine.conversationId, replaces })
    expect([refused.status, refused.body['code']]).toEqual([404, 'not_found'])
  }
  expect((await post({ message: 'no', replaces: randomUUID() })).status).toBe(404)
  expect(await turns(mine.conversationId)).toEqual([2])
})

test('the same turn again is the same run, and with another target another body', async () => {
  const first = await turn('one')
  const { conversationId } = first
  const clientTurnId = randomUUID()
  const body = { message: 'edited', conversationId, replaces: first.runId, clientTurnId }
  const sent = await post(body)
  expect((await post(body)).body['runId']).toBe(sent.body['runId'])
  const { replaces: _, ...plain } = body
  expect((await post(plain)).body['code']).toBe('turn_mismatch')
  await readLog(holdfast.url, String(sent.body['runId']))
})

test('what a replaced turn asked is closed', async () => {
  const first = await turn('/approve the garden')
  const { conversationId } = first
  const second = await turn('the door instead', { conversationId, replaces: first.runId })
  const log = await readLog(holdfast.url, second.runId)
  expect(log[0]?.event).toMatchObject({ input: { messages: [{ role: 'user' }] } })
  expect(await turns(conversationId)).toEqual([2])
})

async function turn(message: string, more: Record<string, unknown> = {}): Promise<Sent> {
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

async function turns(conversationId: string): Promise<number[]> {
  return [...new Set((await view(conversationId)).messages.map((message) => message.turn))]
}

async function said({ runId, conversationId }: Sent): Promise<string> {
  const { messages } = await view(conversationId)
  return messages.filter((message) => message.runId === runId).at(-1)?.message.content ?? ''
}
