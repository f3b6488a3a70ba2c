// Goal: bytes that come with a message are stored once, are in no event, reach the agent, and go with their conversation.
// Method: a Holdfast of real processes, the demo agent, a scripted upstream, AG-UI's own client, a look at the rows.
import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { HttpAgent } from '@ag-ui/client'
import type { Message } from '@holdfast/protocol'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readEvents, request } from '../support/api.ts'
import { type Part, part, type Sender, said, sender } from '../support/attachment-sender.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { until } from '../support/readers.ts'
import { connect, type Sql } from '../support/sql.ts'
import { answer, startUpstream, type Upstream } from '../support/upstream.ts'

const LIMIT_MS = 20_000
/** Nearly as much as a message can bring: 1 MiB of base64. */
const LARGE = randomBytes(740_000)

let upstream: Upstream
let holdfast: Holdfast
let sql: Sql
let ada: Sender

beforeAll(async () => {
  upstream = await startUpstream((exchange) => answer(exchange, 'I see.'))
  holdfast = await startHoldfast({
    agents: {
      default: 'demo',
      agents: { demo: { type: 'demo' }, remote: { type: 'ag-ui', url: upstream.url } },
    },
  })
  sql = await connect(holdfast.databaseUrl)
  ada = sender(holdfast.url)
})

afterAll(async () => {
  await sql[Symbol.asyncDispose]()
  await holdfast[Symbol.asyncDispose]()
  await upstream[Symbol.asyncDispose]()
})

/** What the upstream was given last of the user's message at a place. */
async function partsToUpstream(place = -1): Promise<Part[]> {
  const input = upstream.exchanges.at(-1)?.input
  const users = input?.messages.filter(({ role }) => role === 'user') ?? []
  return (users.at(place)?.content ?? []) as Part[]
}

test('bytes are stored once and referred to, however often and wherever they are sent and read', async () => {
  const bytes = randomBytes(300_000)
  const message = said('look', part(bytes), part(bytes))
  const { runId, conversationId } = await ada.ended(message)
  await ada.ended(said('again', part(bytes)), { conversationId })
  const [url, ...same] = await ada.urlsOf(conversationId)
  const id = createHash('sha256').update('image/png\0').update(bytes).digest('hex')
  expect(url).toBe(`/conversations/${conversationId}/attachments/${id}`)
  expect(same).toEqual([url, url])
  const log = await readEvents(holdfast.url, runId, { after: 0 })
  const prelude = await readEvents(holdfast.url, runId)
  const view = await request(`${holdfast.url}/conversations/${conversationId}`)
  for (const read of [log, prelude, view.body]) {
    const text = JSON.stringify(read)
    expect(text).toContain(url)
    expect(text.length).toBeLessThan(10_000)
  }
  const stored = await sql(
    `SELECT octet_length(a.bytes) AS size, c.attachment_bytes::int AS counted, c.bytes::int AS bytes
     FROM holdfast.attachments a JOIN holdfast.conversations c ON c.id = a.conversation_id
     WHERE c.id = $1`,
    [conversationId],
  )
  expect(stored).toMatchObject([{ size: bytes.length, counted: bytes.length }])
  expect(stored[0]?.['bytes']).toBeLessThan(10_000)
})

test('an agent gets the bytes again; what is elsewhere passes through and is never fetched', async () => {
  const bytes = randomBytes(3000)
  const elsewhere = [
    { type: 'image', source: { type: 'url', value: 'http://169.254.169.254/latest' } },
    { type: 'document', source: { type: 'file', value: 'file-1', provider: 'openai' } },
  ]
  const image = part(bytes, 'image/webp', { metadata: { filename: 'a.webp' } })
  const { conversationId } = await ada.ended(said('look', image, ...elsewhere), { agent: 'remote' })
  expect(await partsToUpstream()).toEqual(said('look', image, ...elsewhere))
  await ada.ended('and now?', { agent: 'remote', conversationId })
  expect(await partsToUpstream(0)).toEqual(said('look', image, ...elsewhere))
  const [url] = await ada.urlsOf(conversationId)
  expect(url).toMatch(/^\/conversations\//)
})

test('a data URL is bytes as well', async () => {
  const bytes = randomBytes(30)
  const value = `data:image/png;base64,${bytes.toString('base64')}`
  const image = { type: 'image', source: { type: 'url', value } }
  const { conversationId } = await ada.ended([image], { agent: 'remote' })
  expect(await partsToUpstream()).toEqual([part(bytes)])
  const [url = ''] = await ada.urlsOf(conversationId)
  expect((await ada.download(url)).bytes.equals(bytes)).toBe(true)
})

test('an attempt gets as much as its limit allows, the newest, and a note for the rest', async () => {
  const { conversationId } = await ada.ended(said('look', part(LARGE)), { agent: 'remote' })
  const [url] = await ada.urlsOf(conversationId)
  const reference = { type: 'image', source: { type: 'url', value: url } }
  const parts = Array.from({ length: 20 }, () => reference)
  await ada.ended(parts, { conversationId, agent: 'remote' })
  const given = await partsToUpstream()
  const fitting = Math.floor((8 << 20) / LARGE.length)
  const note = '[An earlier attachment is left out: image, image/png]'
  expect(given.slice(0, -fitting)).toEqual(
    Array.from({ length: 20 - fitting }, () => ({ type: 'text', text: note })),
  )
  expect(given.slice(-fitting)).toEqual(Array.from({ length: fitting }, () => part(LARGE)))
  expect(await partsToUpstream(0)).toEqual(said('look', { type: 'text', text: note }))
})

test('the same turn again is its run, with the bytes or the reference, and with other bytes it is not', async () => {
  const clientTurnId = randomUUID()
  const [one, two] = [part(randomBytes(500)), part(randomBytes(500))]
  const { runId, conversationId } = await ada.ended([one], { clientTurnId })
  const [value] = await ada.urlsOf(conversationId)
  const reference = { type: 'image', source: { type: 'url', value, mimeType: 'image/png' } }
  for (const message of [[one], [reference]]) {
    const again = await ada.post({ message, clientTurnId })
    expect([again.status, again.body['runId']]).toEqual([200, runId])
  }
  const mismatch = await ada.post({ message: [two], clientTurnId })
  expect([mismatch.status, mismatch.body['code']]).toEqual([422, 'turn_mismatch'])
  // As it was stored when bytes were still in the message.
  const { type, value: base64, mimeType } = one.source
  const before = `{"context":[],"message":[{"source":{"mimeType":"${mimeType}","type":"${type}","value":"${base64}"},"type":"image"}]}`
  const fingerprint = createHash('sha256').update(before).digest('hex')
  await sql('UPDATE holdfast.client_turns SET fingerprint = $1 WHERE client_turn_id = $2', [
    fingerprint,
    clientTurnId,
  ])
  const again = await ada.post({ message: [one], clientTurnId })
  expect([again.status, again.body['runId']]).toEqual([200, runId])
  expect((await ada.post({ message: [two], clientTurnId })).status).toBe(422)
})

test('a reference is good in its own conversation; elsewhere it is refused without a trace', async () => {
  const bytes = randomBytes(500)
  const { runId, conversationId } = await ada.ended([part(bytes)], { agent: 'remote' })
  const [value = ''] = await ada.urlsOf(conversationId)
  const reference = { type: 'image', source: { type: 'url', value } }
  await ada.ended(said('edited', reference), { conversationId, agent: 'remote', replaces: runId })
  expect(await partsToUpstream()).toEqual(said('edited', part(bytes)))
  expect(await ada.urlsOf(conversationId)).toEqual([value])

  const mine = await ada.ended([part(bytes)])
  const unknown = { type: 'image', source: { type: 'url', value: value.replace(/.{4}$/, '0000') } }
  const count = () => sql('SELECT count(*)::int AS n FROM holdfast.client_turns')
  const before = await count()
  for (const json of [
    { message: [reference] },
    { message: [reference], conversationId: mine.conversationId },
    { message: [unknown], conversationId },
  ]) {
    const refused = await ada.post(json)
    expect([refused.status, refused.body['code']]).toEqual([422, 'unknown_attachment'])
  }
  expect(await count()).toEqual(before)
})

test('a conversation takes no more bytes than its limit, and says so', async () => {
  const { conversationId } = await ada.ended([part(randomBytes(1000))])
  const fill = (bytes: number) =>
    sql('UPDATE holdfast.conversations SET attachment_bytes = $1 WHERE id = $2', [
      bytes,
      conversationId,
    ])
  await fill((64 << 20) - 999)
  const full = await ada.post({ message: [part(randomBytes(1000))], conversationId })
  expect([full.status, full.body['code']]).toEqual([413, 'conversation_full'])
  const stored = await sql('SELECT FROM holdfast.attachments WHERE conversation_id = $1', [
    conversationId,
  ])
  expect(stored).toHaveLength(1)
  await fill(1000)
})

test('results of front-end tools bring bytes too, and a settled one is not looked at', async () => {
  const tools = [{ name: 'shoot', description: 'Takes a picture', parameters: {} }]
  const bytes = randomBytes(500)
  const { conversationId } = await ada.ended('/call shoot {}', { tools })
  const call = (await ada.messagesOf(conversationId)).flatMap((message) =>
    message.role === 'assistant' ? (message.toolCalls ?? []) : [],
  )[0]
  const next = await ada.post({
    conversationId,
    toolResults: [{ toolCallId: call?.id, content: [part(bytes)] }],
  })
  expect(next.status).toBe(202)
  await readEvents(holdfast.url, String(next.body['runId']), { after: 0 })
  const [url = ''] = await ada.urlsOf(conversationId)
  expect((await ada.download(url)).bytes.equals(bytes)).toBe(true)

  const agent = client('results', 'demo')
  agent.addMessage({ id: 'm1', role: 'user', content: '/call shoot {}' })
  await agent.runAgent({ runId: 'results-1', tools })
  const toolCallId = agent.messages.flatMap((message) =>
    message.role === 'assistant' ? (message.toolCalls ?? []) : [],
  )[0]?.id
  const bad = { id: 'r1', role: 'tool', toolCallId, content: [part(bytes, 'a/b')] } as Message
  const before = agent.messages
  agent.setMessages([...before, bad])
  await expect(agent.runAgent({ runId: 'results-2', tools })).rejects.toThrow(
    /toolResults\.0\.content\.0\.source\.mimeType/,
  )
  const settled = { ...bad, toolCallId: 'nobody asked' } as Message
  agent.setMessages([...before, settled, { id: 'm2', role: 'user', content: 'well?' }])
  await agent.runAgent({ runId: 'results-3', tools })
})

test('a stock client sends bytes, asks again after a reload with what it then has, and is understood', async () => {
  const bytes = randomBytes(5000)
  const agent = client('stock', 'remote')
  const content = said('look', part(bytes)) as Message['content']
  agent.addMessage({ id: 'm1', role: 'user', content } as Message)
  await agent.runAgent({ runId: 'stock-1' })
  const { body } = await request(`${holdfast.url}/conversations`)
  const stock = (body['conversations'] as { conversationId: string; externalId: string }[]).find(
    ({ externalId }) => externalId === 'stock',
  )
  const conversationId = stock?.conversationId ?? ''
  const stored = await ada.messagesOf(conversationId)
  const [url = ''] = await ada.urlsOf(conversationId)
  const reloaded = client('stock', 'remote', stored)
  reloaded.addMessage({ id: 'm2', role: 'user', content: stored[0]?.content } as Message)
  await reloaded.runAgent({ runId: 'stock-2' })
  expect(await partsToUpstream()).toEqual(content)
  expect(await ada.urlsOf(conversationId)).toEqual([url, url])
  expect(reloaded.messages).toEqual(await ada.messagesOf(conversationId))
})

test('with a conversation that is deleted its bytes go', async () => {
  const { conversationId } = await ada.ended([part(randomBytes(500))])
  const [url = ''] = await ada.urlsOf(conversationId)
  const path = `${holdfast.url}/conversations/${conversationId}`
  expect((await request(path, { method: 'DELETE' })).status).toBe(204)
  expect((await ada.download(url)).response.status).toBe(404)
  const left = () =>
    sql('SELECT FROM holdfast.attachments WHERE conversation_id = $1', [conversationId])
  await until('its bytes are removed', LIMIT_MS, async () => (await left()).length === 0)
})

function client(threadId: string, agent: string, initialMessages: Message[] = []): HttpAgent {
  const url = `${holdfast.url}/ag-ui/${agent}`
  return new HttpAgent({ url, threadId, initialMessages })
}
