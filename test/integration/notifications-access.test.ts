// Goal: only operators see and redrive notifications, each those of his tenant; a caller can name only endpoints that
// the operator allows, and no name leads the relay into the own network. Method: tokens of several callers; sinks on
// loopback, which is private where callers are authenticated.
import { hostname } from 'node:os'
import { SignJWT } from 'jose'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../chaos/observe.ts'
import { request, type Sent, send } from '../support/api.ts'
import { createDatabase } from '../support/database.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { startChild } from '../support/processes.ts'
import { startWebhookSink, type WebhookSink } from '../support/webhook-sink.ts'

const SECRET = 'a secret that is long enough for HS256'

type Headers = Record<string, string>

let sink: WebhookSink
let holdfast: Holdfast
let ada: Headers
let sent: Sent
let eventId: string

beforeAll(async () => {
  sink = await startWebhookSink((told) => told.answer(410))
  const port = new URL(sink.url).port
  holdfast = await startHoldfast({
    env: {
      AUTH_JWT_SECRET: SECRET,
      NOTIFY_ALLOW: `Hooks.test, 127.0.0.1:${port}, ${hostname()}, secure.test:443`,
    },
  })
  ada = await as({ sub: 'ada', tenant: 'acme' })
  sent = await send(holdfast.url, '/long 1', { notifyUrl: `${sink.url}/hook` }, ada)
  await sink.of(sent.runId)
  eventId = sink.told[0]?.body.eventId ?? ''
  await until('it is given up', async () => (await stateOf(sent.runId)) === 'dead')
})

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await sink?.[Symbol.asyncDispose]()
})

async function as(claims: Record<string, string>): Promise<Headers> {
  const jwt = new SignJWT(claims).setProtectedHeader({ alg: 'HS256' })
  return { authorization: `Bearer ${await jwt.sign(new TextEncoder().encode(SECRET))}` }
}

const operator = () => as({ sub: 'eve', tenant: 'acme', role: 'operator' })

async function notifications(query = '', headers?: Headers) {
  const url = `${holdfast.url}/notifications${query}`
  return await request(url, { headers: headers ?? (await operator()) })
}

async function entryOf(runId: string) {
  const { body } = await notifications(`?runId=${runId}`)
  const found = body['notifications'] as {
    state: string
    deliveries: { lastError: string | null }[]
  }[]
  return found[0]
}

const stateOf = async (runId: string) => (await entryOf(runId))?.state

function redrive(headers: Headers, id = eventId) {
  return request(`${holdfast.url}/notifications/${id}/redrive`, { method: 'POST', headers })
}

test.each([
  ['a user', { sub: 'ada', tenant: 'acme' }],
  ['a service', { sub: 'ada', tenant: 'acme', role: 'service' }],
])('%s finds no notifications, not even an error about the query', async (_who, claims) => {
  const headers = await as(claims)
  const nowhere = await request(`${holdfast.url}/notifications/x/redrive`, {
    method: 'POST',
    headers,
  })
  for (const answer of [
    await notifications('', headers),
    await notifications('?state=nonsense', headers),
    await redrive(headers),
  ]) {
    expect([answer.status, answer.body]).toEqual([404, nowhere.body])
  }
  expect(await stateOf(sent.runId)).toBe('dead')
})

test('an operator sees those of the own tenant, another tenant’s operator none of them', async () => {
  const foreign = await as({ sub: 'eve', tenant: 'other', role: 'operator' })
  expect((await notifications('?state=dead')).body['notifications']).toHaveLength(1)
  expect((await notifications('', foreign)).body['notifications']).toEqual([])
  const answer = await redrive(foreign)
  const unknown = await redrive(foreign, '01900000-0000-7000-8000-000000000000')
  expect([answer.status, answer.body]).toEqual([404, unknown.body])
  expect(await stateOf(sent.runId)).toBe('dead')
  expect((await redrive(await operator())).status).toBe(202)
  await sink.of(sent.runId, 2)
})

test.each([
  ['a state that there is not', '?state=done', 'state'],
  ['no number', '?limit=x', 'limit'],
  ['no cursor of ours', '?cursor=x', 'cursor'],
])('a list with %s is refused and says what', async (_what, query, path) => {
  const { status, body } = await notifications(query)
  expect([status, body['code']]).toEqual([400, 'invalid_request'])
  expect(body['errors']).toMatchObject([{ path }])
})

test.each([
  ['https://hooks.test/a', 202],
  ['http://HOOKS.test:8080/a#part', 202],
  ['https://secure.test/', 202],
  ['https://secure.test:443/', 202],
  ['http://secure.test/', 400],
  ['https://secure.test:444/', 400],
  ['https://hooks.test.evil.test/', 400],
  ['https://evil.test/?hooks.test', 400],
  ['https://hooks.test@evil.test/', 400],
  ['https://user@hooks.test/', 400],
  ['ftp://hooks.test/', 400],
  ['javascript:alert(1)', 400],
  ['http://127.0.0.1/', 400],
  ['http://localhost/', 400],
  ['http://169.254.169.254/latest/meta-data', 400],
  [`https://hooks.test/${'ü'.repeat(1000)}`, 400],
])('a run may name %s: %i', async (notifyUrl, status) => {
  const json = { message: '/long 1', clientTurnId: notifyUrl.slice(0, 100), notifyUrl }
  const answer = await request(`${holdfast.url}/runs`, { json, headers: ada })
  expect(answer.status).toBe(status)
  if (status === 400) {
    expect(answer.body['errors']).toMatchObject([
      { path: 'notifyUrl', message: expect.stringContaining('NOTIFY_ALLOW') },
    ])
  }
})

test('an address that NOTIFY_ALLOW names is reached, without a secret unsigned', async () => {
  const [told] = await sink.of(sent.runId)
  expect(told?.headers['webhook-id']).toBe(eventId)
  expect(told?.headers['webhook-timestamp']).toMatch(/^\d{10}$/)
  expect(told?.headers).not.toHaveProperty('webhook-signature')
})

test('a name that NOTIFY_ALLOW names does not lead into the own network', async () => {
  const port = new URL(sink.url).port
  const notifyUrl = `http://${hostname()}:${port}/inside`
  const { runId } = await send(holdfast.url, '/long 1', { notifyUrl }, ada)
  const entry = await until('the attempt is recorded', async () => {
    const found = await entryOf(runId)
    return found?.deliveries[0]?.lastError ? found : null
  })
  // Where the machine's own name cannot be resolved nothing is reached either.
  expect(entry.deliveries[0]?.lastError).toMatch(/OUTBOUND_ALLOW|not reached/)
  expect(sink.told.some(({ path }) => path === '/inside')).toBe(false)
})

test.each([
  ['bff', { WEBHOOK_URLS: 'https://x.test' }, 'WEBHOOK_SECRET must be set'],
  ['runner', { WEBHOOK_URLS: 'https://x.test' }, 'WEBHOOK_SECRET must be set'],
  ['runner', { WEBHOOK_URLS: 'x.test' }, 'WEBHOOK_URLS must be http(s) URLs'],
  ['runner', { WEBHOOK_URLS: 'https://a:b@x.test' }, 'WEBHOOK_URLS must be http(s) URLs'],
  ['runner', { WEBHOOK_SECRET: 'whsec_hunter2' }, 'WEBHOOK_SECRET must be whsec_'],
  ['runner', { NOTIFY_ALLOW: 'https://x.test' }, 'NOTIFY_ALLOW must be host names'],
  ['runner', { OUTBOUND_ALLOW: '10.0.0.0/33' }, 'OUTBOUND_ALLOW must be hosts'],
  ['runner', { OUTBOUND_ALLOW: '10.0.0.1:80' }, 'OUTBOUND_ALLOW must be hosts'],
] as const)('a %s with %j says one line that names the variable', async (service, env, line) => {
  await using database = await createDatabase()
  const variables: Record<string, string> = { DATABASE_URL: database.url, PORT: '0', ...env }
  const refused = await startChild(service, variables).catch((error: unknown) => String(error))
  expect(refused).toContain(line)
  expect(refused).not.toContain('hunter2')
})
