// Goal: nobody sees or touches what belongs to another user or tenant, on any route. Method: the same requests
// by several callers, compared with what they get for an id that nobody has.
import { randomUUID } from 'node:crypto'
import { SignJWT } from 'jose'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Answer, type Frame, readEvents, request, type Sent, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'

const SECRET = 'a secret that is long enough for HS256'
const NOBODY: Sent = {
  runId: '01900000-0000-7000-8000-000000000000',
  conversationId: '01900000-0000-7000-8000-000000000001',
}
const SLOW = '/long 1000 /slow 60'

const CALLERS = {
  'another user of the tenant': { sub: 'bob', tenant: 'acme' },
  'a service of the tenant': { sub: 'bob', tenant: 'acme', role: 'service' },
  'a user of that name elsewhere': { sub: 'ada', tenant: 'other' },
  'an operator elsewhere': { sub: 'ada', tenant: 'other', role: 'operator' },
  'a tenant of almost that name': { sub: 'ada', tenant: 'ACME' },
} as const

let holdfast: Holdfast
let ada: Record<string, string>
let ended: Sent
let live: Sent

beforeAll(async () => {
  holdfast = await startHoldfast({ bffEnv: { AUTH_JWT_SECRET: SECRET } })
  ada = await as({ sub: 'ada', tenant: 'acme' })
  ended = await send(holdfast.url, '/long 1 my secret', {}, ada)
  await readEvents(holdfast.url, ended.runId, { after: 0, headers: ada })
  live = await send(holdfast.url, SLOW, {}, ada)
  // What is compared below must not change by itself: it has been claimed when it speaks.
  const speaks = (frames: readonly Frame[]) => frames.length >= 4
  await readEvents(holdfast.url, live.runId, { after: 0, headers: ada, until: speaks })
})

afterAll(async () => {
  await request(`${holdfast.url}/runs/${live.runId}/cancel?wait=10`, { json: {}, headers: ada })
  await holdfast[Symbol.asyncDispose]()
})

async function as(claims: Record<string, string>): Promise<Record<string, string>> {
  const jwt = new SignJWT(claims).setProtectedHeader({ alg: 'HS256' })
  return { authorization: `Bearer ${await jwt.sign(new TextEncoder().encode(SECRET))}` }
}

type Call = [method: string, path: string, json?: unknown]

/** Every route that takes an id of a run or a conversation. */
function callsFor({ runId, conversationId }: Sent): Call[] {
  return [
    ['GET', `/runs/${runId}`],
    ['GET', `/runs/${runId}/why`],
    ['GET', `/runs/${runId}/timeline`],
    ['GET', `/runs/${runId}/events`],
    ['GET', `/runs/${runId}/events?after=0`],
    ['GET', `/runs/${runId}/events?after=999999`],
    ['POST', `/runs/${runId}/cancel`, {}],
    ['POST', `/runs/${runId}/cancel?wait=1`, {}],
    ['GET', `/conversations/${conversationId}`],
    ['PATCH', `/conversations/${conversationId}`, { title: 'mine now' }],
    ['DELETE', `/conversations/${conversationId}`],
    ['DELETE', `/conversations/${conversationId}?cancel=true`],
    ['POST', '/runs', { message: 'x', clientTurnId: 'into', conversationId }],
    ['POST', '/runs', { message: 'x', clientTurnId: 'in', conversationId, onActive: 'cancel' }],
    ['POST', '/ag-ui/demo/cancel', { threadId: conversationId }],
    ['POST', '/ag-ui/demo/cancel', { threadId: conversationId, runId }],
  ]
}

function call([method, path, json]: Call, headers: Record<string, string>): Promise<Answer> {
  const body = json === undefined ? {} : { json }
  return request(`${holdfast.url}${path}`, { method, headers, ...body })
}

async function what(sent: Sent, headers = ada): Promise<unknown> {
  const run = await request(`${holdfast.url}/runs/${sent.runId}`, { headers })
  const url = `${holdfast.url}/conversations/${sent.conversationId}`
  const conversation = await request(url, { headers })
  const { sequence: _, ...steady } = run.body
  return { steady, title: conversation.body['title'], updatedAt: conversation.body['updatedAt'] }
}

async function idsOf(path: string, headers: Record<string, string>): Promise<string> {
  const answer = await request(`${holdfast.url}${path}`, { headers })
  expect(answer.status).toBe(200)
  return JSON.stringify(answer.body)
}

test.each(Object.entries(CALLERS))(
  '%s gets of every route what nobody’s id gives',
  async (_name, claims) => {
    const headers = await as(claims)
    const before = [await what(ended), await what(live)]
    for (const theirs of [ended, live]) {
      for (const [at, each] of callsFor(theirs).entries()) {
        const answer = await call(each, headers)
        const unknown = await call(callsFor(NOBODY)[at] ?? each, headers)
        expect([each, answer.status, answer.body]).toEqual([each, 404, unknown.body])
        expect(JSON.stringify(answer.body)).not.toMatch(/secret|my/)
      }
    }
    expect([await what(ended), await what(live)]).toEqual(before)
  },
)

test.each(Object.entries(CALLERS))('%s finds nothing in any list', async (_name, claims) => {
  const headers = await as(claims)
  const paths = ['/runs', '/conversations', `/runs?conversationId=${ended.conversationId}`]
  paths.push('/runs?state=running', '/runs?agent=demo')
  if ('role' in claims && claims.role === 'operator') paths.push('/runs?all=true', '/notifications')
  for (const path of paths) {
    const text = await idsOf(path, headers)
    for (const id of [...Object.values(ended), ...Object.values(live)]) {
      expect([path, text.includes(id)]).toEqual([path, false])
    }
  }
})

test('without a token every route is closed, and says the same of every id', async () => {
  for (const [at, each] of callsFor(live).entries()) {
    const answer = await call(each, {})
    const unknown = await call(callsFor(NOBODY)[at] ?? each, {})
    expect([each, answer.status, answer.body]).toEqual([each, 401, unknown.body])
  }
})

test('an operator of the tenant sees its runs, among all when asked', async () => {
  const operator = await as({ sub: 'eve', tenant: 'acme', role: 'operator' })
  expect(await what(ended, operator)).toEqual(await what(ended))
  expect(await idsOf('/runs?all=true', operator)).toContain(ended.runId)
  expect(await idsOf('/runs', operator)).not.toContain(ended.runId)
})

test('the same client turn of two users is two runs', async () => {
  const json = { message: '/long 1', clientTurnId: randomUUID() }
  const callers = [ada, await as(CALLERS['another user of the tenant'])]
  callers.push(await as(CALLERS['a user of that name elsewhere']))
  const answers = await Promise.all(
    callers.map((headers) => request(`${holdfast.url}/runs`, { json, headers })),
  )
  expect(answers.map(({ status }) => status)).toEqual([202, 202, 202])
  expect(new Set(answers.map(({ body }) => body['runId'])).size).toBe(3)
})

test('the same AG-UI thread, run and message of two users are two conversations', async () => {
  const json = {
    threadId: `thread-${randomUUID()}`,
    runId: `run-${randomUUID()}`,
    messages: [{ id: 'm1', role: 'user', content: '/long 1' }],
    tools: [],
    context: [],
    state: {},
    forwardedProps: {},
  }
  const callers = [ada, await as(CALLERS['another user of the tenant'])]
  const ids: (string | null)[] = []
  for (const headers of callers) {
    const { status, headers: answered } = await request(`${holdfast.url}/ag-ui/demo`, {
      json,
      headers,
    })
    expect(status).toBe(200)
    ids.push(answered.get('x-holdfast-run-id'), answered.get('x-holdfast-conversation-id'))
  }
  expect(ids.every((id) => id !== null)).toBe(true)
  expect(new Set(ids).size).toBe(4)
})

test('a foreign thread is not entered: its name makes a conversation of one’s own', async () => {
  const bob = await as(CALLERS['another user of the tenant'])
  const before = await what(live)
  const { status, headers } = await request(`${holdfast.url}/ag-ui/demo`, {
    json: {
      threadId: live.conversationId,
      runId: randomUUID(),
      messages: [{ id: 'm1', role: 'user', content: '/long 1' }],
      tools: [],
      context: [],
    },
    headers: bob,
  })
  expect(status).toBe(200)
  expect(headers.get('x-holdfast-conversation-id')).not.toBe(live.conversationId)
  expect(await what(live)).toEqual(before)
})
