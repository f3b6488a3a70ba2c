import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import * as z from 'zod'

const ROOT = fileURLToPath(new URL('../../..', import.meta.url))

const Port = wholeNumber(65_535, 'a port, 0 to 65535')

const Env = z.object({
  PORT: Port.default(3000),
  HOST: z
    .string()
    .regex(/^[A-Za-z0-9.:_-]+$/, 'a host name or an IP address')
    .default('127.0.0.1'),
  DATABASE_URL: z
    .string()
    .regex(/^postgres(ql)?:\/\/./, 'a PostgreSQL URL, postgres://user:password@host:port/database')
    .optional(),
  HOLDFAST_DATA_DIR: z.string().default('.holdfast'),
  HOLDFAST_RUNNERS: wholeNumber(100, 'a number of runner processes, 0 to 100').default(1),
  DRAIN_SECONDS: z
    .string()
    .regex(/^\d{1,6}(\.\d+)?$/, 'a number of seconds')
    .transform(Number)
    .default(30),
  RUNNER_METRICS_PORT: Port.optional(),
  LOG_LEVEL: z
    .enum(['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'], {
      error: 'trace, debug, info, warn, error, fatal or silent',
    })
    .default('info'),
})

export type Environment = Readonly<Record<string, string | undefined>>

export type Config = {
  readonly port: number
  readonly host: string
  /** `undefined`: the embedded PostgreSQL. */
  readonly databaseUrl: string | undefined
  readonly dataDir: string
  readonly runners: number
  readonly drainMs: number
  readonly runnerMetricsPort: number | undefined
  readonly logLevel: string
}

/**
 * What the environment says; relative paths start at the repository's root and an empty variable
 * counts as not set. `invalid` comes with the line for the person who set it, without the value.
 */
export function parseConfig(
  environment: Environment,
): { kind: 'ok'; config: Config } | { kind: 'invalid'; message: string } {
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value))
  const parsed = Env.safeParse(given)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    const message = `${String(issue?.path[0])} must be ${issue?.message ?? 'valid'}`
    return { kind: 'invalid', message }
  }
  const env = parsed.data
  const config = {
    port: env.PORT,
    host: env.HOST,
    databaseUrl: env.DATABASE_URL,
    dataDir: resolve(ROOT, env.HOLDFAST_DATA_DIR),
    runners: env.HOLDFAST_RUNNERS,
    drainMs: env.DRAIN_SECONDS * 1000,
    runnerMetricsPort: env.RUNNER_METRICS_PORT,
    logLevel: env.LOG_LEVEL,
  }
  return { kind: 'ok', config }
}

function wholeNumber(max: number, expected: string) {
  return z
    .string()
    .regex(/^\d{1,6}$/, expected)
    .transform(Number)
    .refine((number) => number <= max, expected)
}
