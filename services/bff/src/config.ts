import { type ArtifactPlace, ArtifactVariables, artifactPlace } from '@holdfast/artifacts'
import { NotificationVariables } from '@holdfast/protocol'
import { HoldfastError } from '@holdfast/std'
import * as z from 'zod'

/** Who may call. In open mode every caller is the same developer. */
export type AuthConfig =
  | { mode: 'open' }
  | {
      mode: 'jwt'
      key: { secret: string } | { jwksUrl: URL }
      issuer: string | undefined
      audience: string | undefined
      tenantClaim: string
      roleClaim: string
      cookie: string | undefined
    }

/** How event streams behave; constants in production, shortened by tests. */
export type StreamConfig = {
  /** Between comments, and between two looks whether the subscription is still allowed. */
  heartbeatMs: number
  /** A connection ends after about this long, without a terminal event. */
  maxAgeMs: number
  /** For 64 KiB to leave; a reader slower than that is closed. */
  drainMs: number
  /** The safety look at all followed runs, behind the wake-ups. */
  pollMs: number
  /** Streams of one process; more are asked to come again. */
  streamsMax: number
}

export type BffConfig = {
  /** Where the files of runs are. */
  artifacts: ArtifactPlace
  host: string
  port: number
  databaseUrl: string
  directUrl: string
  logLevel: LogLevel
  auth: AuthConfig
  corsOrigins: readonly string[]
  /** `host` or `host:port` a notifyUrl may name, lower case; loopback in open mode. */
  notifyAllow: readonly string[]
  streams: StreamConfig
}

export const STREAM_DEFAULTS: StreamConfig = {
  heartbeatMs: 10_000,
  maxAgeMs: 15 * 60_000,
  drainMs: 30_000,
  pollMs: 1000,
  streamsMax: 20_000,
}

const LogLevel = z.enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], {
  error: 'trace, debug, info, warn, error, fatal or silent',
})
type LogLevel = z.infer<typeof LogLevel>

const Env = z.object({
  ...ArtifactVariables,
  PORT: z
    .string()
    .regex(/^\d{1,5}$/, 'a whole number from 0 to 65535')
    .transform(Number)
    .refine((port) => port <= 65535, 'a whole number from 0 to 65535')
    .default(3000),
  HOST: z
    .string()
    .regex(/^[A-Za-z0-9.:_-]+$/, 'a host name or an IP address')
    .default('127.0.0.1'),
  DATABASE_URL: postgresUrl(),
  DATABASE_DIRECT_URL: postgresUrl().optional(),
  LOG_LEVEL: LogLevel.default('info'),
  AUTH_JWT_SECRET: z.string().optional(),
  AUTH_JWKS_URL: z.string().refine(isHttpUrl, 'an http(s) URL').optional(),
  AUTH_OPEN: z.enum(['true', 'false'], { error: 'true or false' }).default('false'),
  AUTH_ISSUER: z.string().optional(),
  AUTH_AUDIENCE: z.string().optional(),
  AUTH_TENANT_CLAIM: z.string().default('tenant'),
  AUTH_ROLE_CLAIM: z.string().default('role'),
  AUTH_COOKIE: z
    .string()
    .regex(/^[!#$%&'*+.^`|~\w-]+$/, 'the name of a cookie')
    .optional(),
  CORS_ORIGINS: list(isOrigin, 'origins such as https://app.example.com, comma-separated'),
  ...NotificationVariables.shape,
})
type Env = z.infer<typeof Env>

/**
 * What the environment says. An empty variable counts as not set.
 * @throws HoldfastError invalid/invalid_config; its message is one line that names the variable
 *   and what it expects, and never the value, which may be a secret
 */
export function parseConfig(environment: Readonly<Record<string, string | undefined>>): BffConfig {
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value))
  const parsed = Env.safeParse(given)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    refuse(String(issue?.path[0]), issue?.message ?? 'valid')
  }
  const env = parsed.data
  const auth = authConfig(env)
  if (auth.mode === 'open' && !isLoopback(env.HOST) && env.AUTH_OPEN !== 'true') {
    refuse(
      'HOST',
      'a loopback address unless AUTH_JWT_SECRET or AUTH_JWKS_URL is set (or AUTH_OPEN=true)',
    )
  }
  if (env.WEBHOOK_URLS.length > 0 && !env.WEBHOOK_SECRET) {
    refuse('WEBHOOK_SECRET', 'set (whsec_ followed by base64) when WEBHOOK_URLS is')
  }
  return {
    artifacts: artifactPlace(env),
    host: env.HOST,
    port: env.PORT,
    databaseUrl: env.DATABASE_URL,
    directUrl: env.DATABASE_DIRECT_URL ?? env.DATABASE_URL,
    logLevel: env.LOG_LEVEL,
    auth,
    corsOrigins: env.CORS_ORIGINS,
    notifyAllow: env.NOTIFY_ALLOW,
    streams: STREAM_DEFAULTS,
  }
}

/** True for 127.0.0.0/8, ::1 and localhost. */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, '$1')
  return name === 'localhost' || name === '::1' || /^127(\.\d{1,3}){3}$/.test(name)
}

function authConfig(env: Env): AuthConfig {
  const claims = {
    issuer: env.AUTH_ISSUER,
    audience: env.AUTH_AUDIENCE,
    tenantClaim: env.AUTH_TENANT_CLAIM,
    roleClaim: env.AUTH_ROLE_CLAIM,
    cookie: env.AUTH_COOKIE,
  }
  if (env.AUTH_JWT_SECRET && env.AUTH_JWKS_URL) {
    refuse('AUTH_JWKS_URL', 'left out when AUTH_JWT_SECRET is set')
  }
  if (env.AUTH_JWT_SECRET) {
    return { mode: 'jwt', key: { secret: env.AUTH_JWT_SECRET }, ...claims }
  }
  if (env.AUTH_JWKS_URL) {
    return { mode: 'jwt', key: { jwksUrl: new URL(env.AUTH_JWKS_URL) }, ...claims }
  }
  return { mode: 'open' }
}

function refuse(variable: string, expected: string): never {
  throw new HoldfastError('invalid', 'invalid_config', `${variable} must be ${expected}`)
}

function postgresUrl() {
  const expected = 'a postgres:// URL'
  return z.string({ error: expected }).refine((value) => {
    const url = URL.parse(value)
    return url?.protocol === 'postgres:' || url?.protocol === 'postgresql:'
  }, expected)
}

function list(accepts: (entry: string) => boolean, expected: string) {
  return z
    .string()
    .transform((text) =>
      text
        .split(',')
        .map((entry) => entry.trim())
        .filter(Boolean),
    )
    .refine((entries) => entries.every(accepts), expected)
    .default([])
}

function isHttpUrl(value: string): boolean {
  const url = URL.parse(value)
  return url?.protocol === 'http:' || url?.protocol === 'https:'
}

function isOrigin(value: string): boolean {
  return isHttpUrl(value) && new URL(value).origin === value
}
