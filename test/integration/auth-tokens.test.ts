// Goal: who is let in, by header and by cookie, and what browsers of other origins are told. Method: a BFF with
// a secret, one with a JWKS address served by this test, and one in open mode; plain HTTP.
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Answer, readEvents, readLog, request, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'

const SECRET = 'a secret that is long enough for HS256'
const APP = 'https://app.test'
const EVIL = 'https://evil.test'
const CLAIMS = { sub: 'ada', tenant: 'acme', iss: 'https://id.test', aud: 'holdfast' }

let holdfast: Holdfast

beforeAll(async () => {
  holdfast = await startHoldfast({
    bffEnv: {
      AUTH_JWT_SECRET: SECRET,
      AUTH_COOKIE: 'session',
      AUTH_ISSUER: CLAIMS.iss,
      AUTH_AUDIENCE: CLAIMS.aud,
      CORS_ORIGINS: APP,
      NOTIFY_ALLOW: 'hooks.test',
    },
  })
})

afterAll(() => holdfast[Symbol.asyncDispose]())

type Claims = Record<string, unknown>

function token(claims: Claims = CLAIMS, secret = SECRET, alg = 'HS256'): Promise<string> {
  return new SignJWT(claims).setProtectedHeader({ alg }).sign(new TextEncoder().encode(secret))
}

const inSeconds = (seconds: number) => Math.floor(Date.now() / 1000) + seconds
const bearer = (jwt: string) => ({ authorization: `Bearer ${jwt}` })

async function as(claims: Claims = CLAIMS): Promise<Record<string, string>> {
  return bearer(await token(claims))
}

const turn = () => ({ message: '/long 1', clientTurnId: crypto.randomUUID() })

function post(headers: Record<string, string>): Promise<Answer> {
  return request(`${holdfast.url}/runs`, { json: turn(), headers })
}

test('a good token gets in, until its end', async () => {
  expect((await post(await as())).status).toBe(202)
  expect((await post(await as({ ...CLAIMS, exp: inSeconds(60) }))).status).toBe(202)
})

test.each<[string, () => Promise<string> | string]>([
  ['expired', () => token({ ...CLAIMS, exp: inSeconds(-60) })],
  ['not valid yet', () => token({ ...CLAIMS, nbf: inSeconds(60) })],
  ['signed with another key', () => token(CLAIMS, `${SECRET}!`)],
  ['signed in another way', () => token(CLAIMS, SECRET.repeat(2), 'HS512')],
  ['without tenant', () => token({ ...CLAIMS, tenant: undefined })],
  ['without user', () => token({ ...CLAIMS, sub: undefined })],
  ['from another issuer', () => token({ ...CLAIMS, iss: EVIL })],
  ['for somebody else', () => token({ ...CLAIMS, aud: 'other' })],
  ['unsigned', () => `${btoa('{"alg":"none"}')}.${btoa(JSON.stringify(CLAIMS))}.`],
  ['nonsense', () => 'nonsense'],
])('a token that is %s is refused with 401, on every kind of route', async (_name, make) => {
  const headers = bearer(await make())
  const answers = [
    await post(headers),
    await request(`${holdfast.url}/runs`, { headers }),
    await request(`${holdfast.url}/runs/x/events`, { headers }),
    await request(`${holdfast.url}/runners`, { headers }),
  ]
  for (const answer of answers) {
    expect(answer).toMatchObject({ status: 401, body: { code: 'unauthorized', status: 401 } })
    expect(answer.headers.get('www-authenticate')).toBe('Bearer')
    expect(answer.headers.get('content-type')).toBe('application/problem+json')
  }
})

test('without any token it is 401 too, whatever the method', async () => {
  for (const headers of [{}, { authorization: 'Basic YTpi' }, { authorization: 'Bearer' }]) {
    expect((await post(headers)).status).toBe(401)
    expect((await request(`${holdfast.url}/runs`, { headers })).status).toBe(401)
  }
  const conversation = `${holdfast.url}/conversations/x`
  expect((await request(conversation, { method: 'DELETE' })).status).toBe(401)
})

test('the probes and the page need no token', async () => {
  for (const path of ['/healthz', '/readyz', '/metrics', '/openapi.json', '/docs', '/']) {
    expect([path, (await request(`${holdfast.url}${path}`)).status]).toEqual([path, 200])
  }
})

test.each([
  ['user', 404],
  ['service', 404],
  ['admin', 404],
  [undefined, 404],
  ['operator', 200],
])('the role %s gets %i from the operators’ routes', async (role, status) => {
  const headers = await as({ ...CLAIMS, role })
  for (const path of ['/runners', '/notifications', '/runs?all=true']) {
    const answer = await request(`${holdfast.url}${path}`, { headers })
    expect([path, answer.status]).toEqual([path, status])
  }
  const redrive = `${holdfast.url}/notifications/x/redrive`
  expect((await request(redrive, { method: 'POST', headers })).status).toBe(404)
})

test('a notifyUrl may name only allowed hosts, and loopback is none of them', async () => {
  const headers = await as()
  const statusOf = async (notifyUrl: string) =>
    (await request(`${holdfast.url}/runs`, { json: { ...turn(), notifyUrl }, headers })).status
  expect(await statusOf('https://hooks.test/a')).toBe(202)
  expect(await statusOf('https://HOOKS.test:8443/a')).toBe(202)
  expect(await statusOf('https://hooks.test.evil.test/')).toBe(400)
  expect(await statusOf('http://127.0.0.1/')).toBe(400)
  expect(await statusOf('http://localhost/')).toBe(400)
})

test('a cookie may read; it may change something only from an allowed page', async () => {
  const cookie = `a=b; session=${await token()}`
  expect((await request(`${holdfast.url}/runs`, { headers: { cookie } })).status).toBe(200)
  expect((await post({ cookie, origin: APP })).status).toBe(202)
  expect((await post({ cookie, origin: holdfast.url })).status).toBe(202)
  for (const origin of [EVIL, 'null', `${APP}.evil.test`]) {
    const answer = await post({ cookie, origin })
    expect(answer).toMatchObject({ status: 403, body: { code: 'foreign_origin' } })
  }
  // What sends neither Origin nor Sec-Fetch-Site is no browser.
  expect((await post({ cookie, 'sec-fetch-site': 'cross-site' })).status).toBe(403)
  expect((await post({ cookie })).status).toBe(202)
  // Whoever can set the header is no page of another origin.
  expect((await post({ ...(await as()), origin: EVIL })).status).toBe(202)
})

test('a cookie lets EventSource follow', async () => {
  const { runId } = await send(holdfast.url, '/long 2', {}, await as())
  const headers = { cookie: `session=${await token()}` }
  const frames = await readEvents(holdfast.url, runId, { after: 0, headers })
  expect(frames.at(-1)?.event.type).toBe('RUN_FINISHED')
})

test('a preflight of an allowed origin is told what it may do, a foreign one nothing', async () => {
  const ask = (origin: string) =>
    request(`${holdfast.url}/runs`, {
      method: 'OPTIONS',
      headers: {
        origin,
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization,content-type,last-event-id',
      },
    })
  const { status, headers } = await ask(APP)
  expect(status).toBe(204)
  expect(headers.get('access-control-allow-origin')).toBe(APP)
  expect(headers.get('access-control-allow-credentials')).toBe('true')
  for (const method of ['GET', 'POST', 'PATCH', 'DELETE']) {
    expect(headers.get('access-control-allow-methods')).toContain(method)
  }
  for (const name of ['authorization', 'content-type', 'last-event-id']) {
    expect(headers.get('access-control-allow-headers')?.toLowerCase()).toContain(name)
  }
  expect((await ask(EVIL)).headers.get('access-control-allow-origin')).toBeNull()
})

test('streams, their refusals and their ends carry the CORS headers', async () => {
  const owner = await as()
  const { runId } = await send(holdfast.url, '/long 2', {}, owner)
  let length = 0
  await readEvents(holdfast.url, runId, {
    after: 0,
    headers: owner,
    onFrame: ({ id }) => (length = id ?? 0),
  })
  const queries = { '': 200, '?after=0': 200, [`?after=${length}`]: 204, '?after=x': 400 }
  for (const [query, status] of Object.entries(queries)) {
    const url = `${holdfast.url}/runs/${runId}/events${query}`
    const answer = await request(url, { headers: { ...owner, origin: APP } })
    expect([query, answer.status]).toEqual([query, status])
    expect(answer.headers.get('access-control-allow-origin')).toBe(APP)
    expect(answer.headers.get('vary')).toMatch(/origin/i)
    expect(answer.headers.get('access-control-expose-headers')).toContain('x-request-id')
    expect(answer.headers.get('x-request-id')).toMatch(/./)
    const foreign = await request(url, { headers: { ...owner, origin: EVIL } })
    expect(foreign.headers.get('access-control-allow-origin')).toBeNull()
  }
  const nobody = await request(`${holdfast.url}/runs/${runId}/events`, { headers: { origin: APP } })
  expect([nobody.status, nobody.headers.get('access-control-allow-origin')]).toEqual([401, APP])
})

test('keys come from a JWKS address', async () => {
  const { publicKey, privateKey } = await generateKeyPair('ES256')
  const jwks = { keys: [{ ...(await exportJWK(publicKey)), kid: 'k1', alg: 'ES256' }] }
  const server = createServer((_request, response) => response.end(JSON.stringify(jwks)))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const bff = await holdfast.startBff({
    AUTH_JWT_SECRET: '',
    AUTH_JWKS_URL: `http://127.0.0.1:${port}/jwks.json`,
  })
  const sign = (key: CryptoKey, kid: string) =>
    new SignJWT(CLAIMS).setProtectedHeader({ alg: 'ES256', kid }).sign(key)
  const statusOf = async (jwt: string) =>
    (await request(`${bff.url}/runs`, { headers: bearer(jwt) })).status
  expect(await statusOf(await sign(privateKey, 'k1'))).toBe(200)
  const { privateKey: stranger } = await generateKeyPair('ES256')
  expect(await statusOf(await sign(stranger, 'k1'))).toBe(401)
  expect(await statusOf(await sign(stranger, 'k2'))).toBe(401)
  // The shared secret is none here, nor is the public key used as one.
  expect(await statusOf(await token())).toBe(401)
  expect(await statusOf(await token(CLAIMS, JSON.stringify(jwks.keys[0])))).toBe(401)
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
})

test('open mode: everybody is the developer, but a foreign page changes nothing', async () => {
  const closed = { AUTH_JWT_SECRET: '', AUTH_COOKIE: '', AUTH_ISSUER: '', AUTH_AUDIENCE: '' }
  const open = await holdfast.startBff(closed)
  const mine = await send(holdfast.url, '/long 1', {}, await as())
  const { runId } = await send(open.url, '/long 1', {}, await as())
  await readLog(open.url, runId)
  expect((await request(`${open.url}/runs/${runId}`)).status).toBe(200)
  expect((await request(`${open.url}/runners`)).status).toBe(200)
  expect((await request(`${open.url}/runs/${mine.runId}`)).status).toBe(404)
  const foreign = await request(`${open.url}/runs`, { json: turn(), headers: { origin: EVIL } })
  expect(foreign.status).toBe(403)
  expect(open.log()).toContain('open mode')
  await expect(holdfast.startBff({ ...closed, HOST: '0.0.0.0' })).rejects.toThrow(/HOST must be/)
})
