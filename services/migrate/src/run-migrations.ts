import { HoldfastError, wait } from '@holdfast/std'
import { migrate } from '@holdfast/store'
import { type Logger, pino } from 'pino'
import pretty from 'pino-pretty'
import * as z from 'zod'

const WAIT_FOR_DATABASE_MS = 30_000

const Env = z.object({
  DATABASE_URL: z
    .string({ error: 'set to a PostgreSQL URL, postgres://user:password@host:port/database' })
    .regex(/^postgres(ql)?:\/\/./, 'a PostgreSQL URL, postgres://user:password@host:port/database'),
})

/**
 * Brings the database to this version's schema and returns the exit code. Waits for a database that
 * is still starting; several at once are safe, the others find nothing left to do.
 */
export async function runMigrations(
  environment: Readonly<Record<string, string | undefined>>,
): Promise<number> {
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value))
  const parsed = Env.safeParse(given)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    return refuse(`${String(issue?.path[0])} must be ${issue?.message ?? 'valid'}`)
  }
  const { DATABASE_URL: databaseUrl } = parsed.data
  const log = openLog()
  const giveUpAt = performance.now() + WAIT_FOR_DATABASE_MS
  for (;;) {
    try {
      const { applied } = await migrate(databaseUrl, log)
      log.info({ applied }, applied.length === 0 ? 'schema is current' : 'schema is current now')
      return 0
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error
      if (error.kind !== 'unavailable' || performance.now() > giveUpAt) {
        return refuse(`the database cannot be migrated: ${reason(error)}`)
      }
      log.info({ reason: reason(error) }, 'waiting for the database')
    }
    await wait(1000)
  }
}

function reason(error: HoldfastError): string {
  const cause = error.cause instanceof Error ? ` (${error.cause.message || error.cause.name})` : ''
  return `${error.message}${cause}`
}

function refuse(message: string): 1 {
  process.stderr.write(`holdfast: ${message}\n`)
  return 1
}

function openLog(): Logger {
  const options = { name: 'migrate' }
  if (process.stderr.isTTY) return pino(options, pretty({ destination: 2, sync: true }))
  return pino(options, pino.destination({ dest: 2, sync: true }))
}
