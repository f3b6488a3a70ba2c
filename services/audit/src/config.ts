import { parseArgs } from 'node:util'
import { asError, HoldfastError } from '@holdfast/std'
import * as z from 'zod'

export type AuditConfig = {
  readonly databaseUrl: string
  readonly json: boolean
  readonly queryMs: number
  readonly rowsMax: number
}

const USAGE = 'usage: npm run audit [-- [--json] [--timeout SECONDS] [--rows NUMBER]]'

const URL_EXPECTED = 'a PostgreSQL URL, postgres://user:password@host:port/database'
const Env = z.object({
  DATABASE_URL: z
    .string({ error: `set to ${URL_EXPECTED}` })
    .regex(/^postgres(ql)?:\/\/./, URL_EXPECTED),
})

const OPTIONS = {
  json: { type: 'boolean', default: false },
  timeout: { type: 'string', default: '60' },
  rows: { type: 'string', default: '20' },
} as const

/** @throws HoldfastError invalid/invalid_config in one line */
export function parseConfig(
  environment: Readonly<Record<string, string | undefined>>,
  args: readonly string[],
): AuditConfig {
  const { json, timeout, rows } = optionsIn(args)
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value))
  const env = Env.safeParse(given)
  if (!env.success) throw refused(`DATABASE_URL must be ${env.error.issues[0]?.message ?? 'set'}`)
  return {
    databaseUrl: env.data.DATABASE_URL,
    json,
    queryMs: whole('timeout', timeout, 3600) * 1000,
    rowsMax: whole('rows', rows, 10_000),
  }
}

function optionsIn(args: readonly string[]) {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, strict: true }).values
  } catch (error) {
    throw refused(`${asError(error).message.split('. ')[0]}; ${USAGE}`)
  }
}

function whole(option: string, text: string, max: number): number {
  const value = /^\d{1,6}$/.test(text) ? Number(text) : 0
  if (value >= 1 && value <= max) return value
  throw refused(`--${option} must be a whole number from 1 to ${max}`)
}

function refused(message: string): HoldfastError {
  return new HoldfastError('invalid', 'invalid_config', message)
}
