import { createServer } from 'node:http'
import cookie from '@fastify/cookie'
import Fastify, { type FastifyInstance } from 'fastify'
import { exportJWK, generateKeyPair, SignJWT } from 'jose'
import { describe, expect, test } from 'vitest'
import { type AuthConfig, STREAM_DEFAULTS } from '../config.ts'
import { authPlugin } from './auth.ts'
import { errorsPlugin } from './errors.ts'

const SECRET = 'a secret that is long enough for HS256'
const JWT = {
  mode: 'jwt',
  key: { secret: SECRET },
  issuer: undefined,
  audience: undefined,
  tenantClaim: 'tenant',
  roleClaim: 'role',
  cookie: undefined,
} as const satisfies AuthConfig

async function appWith(auth: AuthConfig, corsOrigins: string[] = []): Promise<FastifyInstance> {
  const app = Fastify()
  errorsPlugin(app)
  await app.register(cookie)
  authPlugin(app, {
    auth,
    corsOrigins,
    host: '127.0.0.1',
    port: 0,
    databaseUrl: '',
    directUrl: '',
    logLevel: 'silent',
    artifacts: { kind: 'folder', folder: '.holdfast' },
    notifyAllow: [],
    streams: STREAM_DEFAULTS,
  })
  app.get('/', (request) => ({ ...request.principal, ends: request.tokenExpiresAtMs ?? null }))
  app.post('/', () => ({}))
  return app
}

function token(claims: Record<string, unknown>, secret = SECRET, alg = 'HS256'): Promise<string> {
  return new SignJWT(claims).setProtectedHeader({ alg }).sign(new TextEncoder().encode(secret))
}

async function get(app: FastifyInstance, jwt: string | undefined) {
  const headers = jwt === undefined ? {} : { authorization: `Bearer ${jwt}` }
  const response = await app.inject({ url: '/', headers })
  return { status: response.statusCode, body: response.json(), headers: response.headers }
}

test('in open mode everybody is the same developer', async () => {
  const app = await appWith({ mode: 'open' })
  expect((await get(app, undefined)).body).toMatchObject({
    tenantId: 'dev',
    userId: 'dev',
    role: 'operator',
  })
})

describe('a token', () => {
  test('names tenant, user, role and its end', async () => {
    const exp = Math.floor(Date.now() / 1000) + 60
    const jwt = await token({ sub: 'u', tenant: 't', role: 'operator', exp })
    expect((await get(await appWith(JWT), jwt)).body).toEqual({
      tenantId: 't',
      userId: 'u',
      role: 'operator',
      ends: exp * 1000,
    })
  })

  test('gives the role user when it names none that exists', async () => {
    const app = await appWith(JWT)
    for (const role of [undefined, 'admin', ['operator'], 7]) {
      const { body } = await get(app, await token({ sub: 'u', tenant: 't', role }))
      expect(body).toMatchObject({ role: 'user' })
    }
  })

  test('may keep tenant and role in other claims', async () => {
    const app = await appWith({ ...JWT, tenantClaim: 'org', roleClaim: 'https://x/role' })
    const jwt = await token({ sub: 'u', org: 'o', tenant: 't', 'https://x/role': 'service' })
    expect((await get(app, jwt)).body).toMatchObject({ tenantId: 'o', role: 'service' })
  })

  test.each([
    ['no token', undefined],
    ['no jwt', 'abc'],
    ['a foreign signature', token({ sub: 'u', tenant: 't' }, 'another secret, also long enough')],
    ['another algorithm', token({ sub: 'u', tenant: 't' }, SECRET, 'HS512')],
    ['no user', token({ tenant: 't' })],
    ['no tenant', token({ sub: 'u' })],
    ['an empty tenant', token({ sub: 'u', tenant: '' })],
    ['a tenant that is no text', token({ sub: 'u', tenant: 5 })],
    ['a tenant that no database holds', token({ sub: 'u', tenant: 'a\u0000' })],
    ['a user without end', token({ sub: 'u'.repeat(300), tenant: 't' })],
    ['a passed end', token({ sub: 'u', tenant: 't', exp: 1 })],
    ['a future begin', token({ sub: 'u', tenant: 't', nbf: 2 ** 40 })],
    ['no signature', 'eyJhbGciOiJub25lIn0.eyJzdWIiOiJ1IiwidGVuYW50IjoidCJ9.'],
  ])('is refused with 401: %s', async (_name, jwt) => {
    const { status, body, headers } = await get(await appWith(JWT), await jwt)
    expect(status).toBe(401)
    expect(body).toMatchObject({ code: 'unauthorized', status: 401 })
    expect(headers['www-authenticate']).toBe('Bearer')
  })

  test('must be from the issuer and for the audience when these are set', async () => {
    const app = await appWith({ ...JWT, issuer: 'me', audience: 'holdfast' })
    const claims = { sub: 'u', tenant: 't', iss: 'me', aud: 'holdfast' }
    expect((await get(app, await token(claims))).status).toBe(200)
    expect((await get(app, await token({ ...claims, iss: 'you' }))).status).toBe(401)
    expect((await get(app, await token({ ...claims, aud: 'other' }))).status).toBe(401)
  })
})

test('keys come from the JWKS address; one that is out of reach is no verdict on the token', async () => {
  const { publicKey, privateKey } = await generateKeyPair('ES256')
  const jwks = JSON.stringify({
    keys: [{ ...(await exportJWK(publicKey)), kid: 'k', alg: 'ES256' }],
  })
  const server = createServer((_request, response) => response.end(jwks)).listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const address = server.address()
  const port = typeof address === 'object' && address ? address.port : 0
  const auth = { ...JWT, key: { jwksUrl: new URL(`http://127.0.0.1:${port}/jwks`) } }
  const jwt = await new SignJWT({ sub: 'u', tenant: 't' })
    .setProtectedHeader({ alg: 'ES256', kid: 'k' })
    .sign(privateKey)
  const app = await appWith(auth)
  expect((await get(app, jwt)).body).toMatchObject({ tenantId: 't', userId: 'u' })
  expect((await get(app, await token({ sub: 'u', tenant: 't' }))).status).toBe(401)
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
  expect((await get(await appWith(auth), jwt)).status).toBe(503)
})

describe('a token in a cookie', () => {
  const auth = { ...JWT, cookie: 'session' }
  const host = 'api.example'

  async function post(headers: Record<string, string>) {
    const app = await appWith(auth, ['https://app.example'])
    const cookies = { session: await token({ sub: 'u', tenant: 't' }) }
    const response = await app.inject({
      method: 'POST',
      url: '/',
      headers: { host, ...headers },
      cookies,
    })
    return response.statusCode
  }

  test('is enough to read', async () => {
    const app = await appWith(auth)
    const cookies = { session: await token({ sub: 'u', tenant: 't' }) }
    expect((await app.inject({ url: '/', cookies })).statusCode).toBe(200)
  })

  test('loses against the header', async () => {
    const app = await appWith(auth)
    const cookies = { session: await token({ sub: 'cookie', tenant: 't' }) }
    const headers = { authorization: `Bearer ${await token({ sub: 'header', tenant: 't' })}` }
    expect((await app.inject({ url: '/', cookies, headers })).json()).toMatchObject({
      userId: 'header',
    })
  })

  test.each([
    ['its own origin', { origin: 'https://api.example' }, 200],
    ['an allowed origin', { origin: 'https://app.example' }, 200],
    ['a page of its own without Origin', { 'sec-fetch-site': 'same-origin' }, 200],
    ['a foreign origin', { origin: 'https://evil.example' }, 403],
    ['an opaque origin', { origin: 'null' }, 403],
    ['a foreign page without Origin', { 'sec-fetch-site': 'cross-site' }, 403],
    ['no page at all', {}, 200],
  ])('changes something only from an allowed page: %s', async (_name, headers, status) => {
    expect(await post(headers as Record<string, string>)).toBe(status)
  })
})

test('in open mode a foreign page changes nothing, and a program does', async () => {
  const app = await appWith({ mode: 'open' })
  const evil = { origin: 'https://evil.example' }
  expect((await app.inject({ method: 'POST', url: '/', headers: evil })).statusCode).toBe(403)
  expect((await app.inject({ method: 'POST', url: '/' })).statusCode).toBe(200)
})
