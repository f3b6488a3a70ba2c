import { HoldfastError } from '@holdfast/std'
import type { Principal } from '@holdfast/store'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { createRemoteJWKSet, errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify } from 'jose'
import type { AuthConfig, BffConfig } from '../config.ts'
import { sendProblem } from './errors.ts'

declare module 'fastify' {
  interface FastifyRequest {
    principal: Principal
    /** When the caller's token ends, in ms since 1970. */
    tokenExpiresAtMs: number | undefined
  }
}

type Identity = { principal: Principal; expiresAtMs: number | undefined }
type Verify = (token: string) => Promise<JWTPayload>

const DEVELOPER: Principal = { tenantId: 'dev', userId: 'dev', role: 'operator' }
const SAFE_METHODS = new Set(['GET', 'HEAD', 'OPTIONS'])
const CLAIM_CHARS_MAX = 256

/** Gives every request of this context its principal, or refuses it before the body is read. */
export function authPlugin(app: FastifyInstance, config: BffConfig): void {
  const { auth } = config
  const verify = auth.mode === 'jwt' ? verifier(auth) : undefined
  app.decorateRequest('principal', undefined as unknown as Principal)
  app.decorateRequest('tokenExpiresAtMs', undefined)

  app.addHook('onRequest', async (request, reply) => {
    const bearer = bearerToken(request)
    const fromCookie = auth.mode === 'jwt' && auth.cookie ? request.cookies[auth.cookie] : undefined
    const token = bearer ?? fromCookie
    // A browser sends a cookie (or, in open mode, reaches us at all) for any page that asks.
    const byBrowser = bearer === undefined && (auth.mode === 'open' || token !== undefined)
    if (byBrowser && !SAFE_METHODS.has(request.method) && !sameSite(request, config)) {
      return sendProblem(reply, 403, 'foreign_origin', 'The Origin header is not an allowed one.')
    }
    const { principal, expiresAtMs } =
      auth.mode === 'jwt' && verify
        ? await identify(auth, verify, token || undefined)
        : { principal: DEVELOPER, expiresAtMs: undefined }
    request.principal = principal
    request.tokenExpiresAtMs = expiresAtMs
    return undefined
  })
}

function verifier(auth: AuthConfig & { mode: 'jwt' }): Verify {
  const options = {
    clockTolerance: 5,
    ...(auth.issuer === undefined ? {} : { issuer: auth.issuer }),
    ...(auth.audience === undefined ? {} : { audience: auth.audience }),
  }
  if ('secret' in auth.key) {
    const key = new TextEncoder().encode(auth.key.secret)
    const algorithms = ['HS256']
    return async (token) => (await jwtVerify(token, key, { ...options, algorithms })).payload
  }
  const keys: JWTVerifyGetKey = createRemoteJWKSet(auth.key.jwksUrl)
  const algorithms = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384']
  algorithms.push('ES512', 'EdDSA', 'Ed25519')
  return async (token) => (await jwtVerify(token, keys, { ...options, algorithms })).payload
}

async function identify(
  auth: AuthConfig & { mode: 'jwt' },
  verify: Verify,
  token: string | undefined,
): Promise<Identity> {
  if (!token) throw unauthorized('A token is missing.')
  const payload = await verify(token).catch(refuseToken)
  const tenantId = claim(payload[auth.tenantClaim])
  const userId = claim(payload.sub)
  if (!tenantId || !userId) throw unauthorized('The token names no tenant or no user.')
  const role = payload[auth.roleClaim]
  return {
    principal: {
      tenantId,
      userId,
      role: role === 'operator' || role === 'service' ? role : 'user',
    },
    expiresAtMs: payload.exp === undefined ? undefined : payload.exp * 1000,
  }
}

/** Keys that cannot be fetched say nothing about the token. */
function refuseToken(cause: unknown): never {
  if (cause instanceof errors.JOSEError && !(cause instanceof errors.JWKSTimeout)) {
    if (cause.code !== 'ERR_JOSE_GENERIC') {
      throw new HoldfastError('unauthorized', 'unauthorized', 'The token is not valid.', { cause })
    }
  }
  throw new HoldfastError('unavailable', 'overloaded', 'The signing keys are out of reach.', {
    cause,
  })
}

function claim(value: unknown): string | undefined {
  const usable = typeof value === 'string' && value !== '' && value.length <= CLAIM_CHARS_MAX
  return usable && value.isWellFormed() && !value.includes('\u0000') ? value : undefined
}

function bearerToken(request: FastifyRequest): string | undefined {
  return /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? '')?.[1]
}

/**
 * Browsers name the page's origin with every request that may change something. Where a cookie is
 * the credential it must be there; in open mode, which other programs use too, it must not be foreign.
 */
function sameSite(request: FastifyRequest, config: BffConfig): boolean {
  const { origin } = request.headers
  if (origin === undefined) {
    // A browser sends an Origin with what changes something; who sends neither header is none.
    const site = request.headers['sec-fetch-site']
    return site === undefined || site === 'same-origin'
  }
  return config.corsOrigins.includes(origin) || URL.parse(origin)?.host === request.headers.host
}

function unauthorized(message: string) {
  return new HoldfastError('unauthorized', 'unauthorized', message)
}
