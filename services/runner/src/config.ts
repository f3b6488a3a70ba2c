import { type ArtifactPlace, ArtifactVariables, artifactPlace } from '@holdfast/artifacts'
import { NotificationVariables } from '@holdfast/protocol'
import { HoldfastError } from '@holdfast/std'
import * as z from 'zod'
import { isOutboundEntry } from './agents/outbound.ts'

export type RunnerConfig = {
  /** Where the files of runs are. */
  artifacts: ArtifactPlace
  databaseUrl: string
  directUrl: string
  agentsFile: string | null
  concurrency: number
  leaseMs: number
  drainMs: number
  metricsPort: number | null
  /** Days that the events of ended runs are kept; `null`: for ever. */
  retentionDays: number | null
  host: string
  outboundAllow: readonly string[]
  /** No authentication is configured: upstreams on loopback are allowed. */
  openMode: boolean
  notifications: NotificationConfig
  logLevel: string
}

/** Who is told of ended runs, besides those that a run names itself. */
export type NotificationConfig = {
  readonly webhookUrls: readonly string[]
  /** The signing key; without one only a run's own notifyUrl is told, unsigned. */
  readonly key: Buffer | null
  /** `host` or `host:port`, lower case. */
  readonly notifyAllow: readonly string[]
}

const LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const

function whole(min: number, max: number) {
  const expected = `a whole number from ${min} to ${max}`
  return z
    .string()
    .regex(/^\d{1,9}$/, expected)
    .transform(Number)
    .refine((number) => number >= min && number <= max, expected)
}

const postgresUrl = z
  .string({ error: 'a postgres:// URL' })
  .refine((text) => /^postgres(ql)?:\/\//.test(text) && URL.canParse(text), 'a postgres:// URL')

const Env = z.object({
  ...ArtifactVariables,
  DATABASE_URL: postgresUrl,
  DATABASE_DIRECT_URL: postgresUrl.optional(),
  HOLDFAST_AGENTS: z.string().optional(),
  RUNNER_CONCURRENCY: whole(1, 10_000).default(100),
  LEASE_SECONDS: whole(1, 3600).default(30),
  DRAIN_SECONDS: whole(0, 3600).default(30),
  RETENTION_DAYS: whole(1, 36_500).optional(),
  RUNNER_METRICS_PORT: z
    .string()
    .regex(/^\d{1,5}$/, 'a whole number from 0 to 65535')
    .transform(Number)
    .refine((port) => port <= 65535, 'a whole number from 0 to 65535')
    .optional(),
  HOST: z.string().default('127.0.0.1'),
  OUTBOUND_ALLOW: z
    .string()
    .default('')
    .transform((text) =>
      text
        .split(',')
        .map((entry) => entry.trim())
        .filter(Boolean),
    )
    .refine(
      (entries) => entries.every(isOutboundEntry),
      'hosts (without a port) or CIDRs, comma-separated',
    ),
  ...NotificationVariables.shape,
  AUTH_JWT_SECRET: z.string().optional(),
  AUTH_JWKS_URL: z.string().optional(),
  LOG_LEVEL: z.enum(LEVELS, { error: `one of ${LEVELS.join(', ')}` }).default('info'),
})

/**
 * What the environment says. An empty variable counts as not set.
 * @throws HoldfastError invalid/invalid_config; its message is one line that names the variable and what it
 *   expects, and never the value, which may be a secret
 */
export function parseConfig(
  environment: Readonly<Record<string, string | undefined>>,
): RunnerConfig {
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value))
  const parsed = Env.safeParse(given)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    refuse(String(issue?.path[0]), issue?.message ?? 'something else')
  }
  const env = parsed.data
  if (env.WEBHOOK_URLS.length > 0 && !env.WEBHOOK_SECRET) {
    refuse('WEBHOOK_SECRET', 'set (whsec_ followed by base64) when WEBHOOK_URLS is')
  }
  return {
    artifacts: artifactPlace(env),
    databaseUrl: env.DATABASE_URL,
    directUrl: env.DATABASE_DIRECT_URL ?? env.DATABASE_URL,
    agentsFile: env.HOLDFAST_AGENTS ?? null,
    concurrency: env.RUNNER_CONCURRENCY,
    leaseMs: env.LEASE_SECONDS * 1000,
    drainMs: env.DRAIN_SECONDS * 1000,
    metricsPort: env.RUNNER_METRICS_PORT ?? null,
    retentionDays: env.RETENTION_DAYS ?? null,
    host: env.HOST,
    outboundAllow: env.OUTBOUND_ALLOW,
    openMode: !env.AUTH_JWT_SECRET && !env.AUTH_JWKS_URL,
    notifications: {
      webhookUrls: env.WEBHOOK_URLS,
      key: env.WEBHOOK_SECRET ? Buffer.from(env.WEBHOOK_SECRET.slice(6), 'base64') : null,
      notifyAllow: env.NOTIFY_ALLOW,
    },
    logLevel: env.LOG_LEVEL,
  }
}

function refuse(variable: string, expected: string): never {
  throw new HoldfastError('invalid', 'invalid_config', `${variable} must be ${expected}`)
}
