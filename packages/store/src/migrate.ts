import { createHash } from 'node:crypto'
import { readdir, readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { HoldfastError } from '@holdfast/std'
import { sql } from 'kysely'
import pg from 'pg'
import { translate } from './pg-error.ts'
import { row, rows, type Store } from './store.ts'

export type SchemaStatus = 'current' | 'behind' | 'ahead' | 'missing'

type Migration = { number: number; name: string; text: string; checksum: string }

// One lock for all migrators of a database, whatever schema they come from.
const LOCK_KEY = 7_205_110_428

/** The folder of plain SQL files beside the packages; an image carries it beside its program. */
const DEFAULT_FOLDER = fileURLToPath(new URL('../../../migrations/', import.meta.url))

/**
 * Brings the database to the schema of this version. Safe to run by many at once: the others wait.
 * Refuses a database whose applied files differ from ours, and changes nothing then.
 * @returns the names of the files that were applied by this call
 */
export async function migrate(
  databaseUrl: string,
  log: { info(fields: object, message: string): void },
  folder = DEFAULT_FOLDER,
): Promise<{ applied: string[] }> {
  const migrations = await readMigrations(folder)
  const client = new pg.Client({
    connectionString: databaseUrl,
    application_name: 'holdfast migrate',
    connectionTimeoutMillis: 5000,
  })
  // A lost connection fails the statement in flight; the event alone must not end the process.
  client.on('error', () => undefined)
  const applied: string[] = []
  try {
    await client.connect()
    await client.query('SELECT pg_advisory_lock($1)', [LOCK_KEY])
    await client.query(`
      CREATE SCHEMA IF NOT EXISTS holdfast;
      CREATE TABLE IF NOT EXISTS holdfast.schema_migrations (
        number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT clock_timestamp())`)
    const done = await client.query('SELECT number, name, checksum FROM holdfast.schema_migrations')
    refuseStrangers(done.rows as Migration[], migrations)
    const known = new Set((done.rows as Migration[]).map((migration) => migration.number))
    for (const migration of migrations.filter((each) => !known.has(each.number))) {
      await apply(client, migration)
      applied.push(migration.name)
      log.info({ migration: migration.name }, 'migration applied')
    }
    await client.query('SELECT holdfast.ensure_partitions(14)')
  } catch (error) {
    throw translate(error)
  } finally {
    await client.end().catch(() => undefined)
  }
  return { applied }
}

/** Whether the database's schema is the one that this version was written for. */
export async function schemaStatus(store: Store, folder = DEFAULT_FOLDER): Promise<SchemaStatus> {
  const table = await row(
    store,
    sql<{
      exists: boolean
    }>`SELECT to_regclass('holdfast.schema_migrations') IS NOT NULL AS exists`,
  )
  if (!table?.exists) return 'missing'
  const done = await rows(
    store,
    sql<{ number: number }>`SELECT number FROM holdfast.schema_migrations`,
  )
  const applied = new Set(done.map((migration) => migration.number))
  const ours = (await readMigrations(folder)).map((migration) => migration.number)
  if (Math.max(0, ...applied) > Math.max(0, ...ours)) return 'ahead'
  // Each one counts, not the newest: two branches may have been merged in another order than their numbers.
  return ours.every((number) => applied.has(number)) ? 'current' : 'behind'
}

async function readMigrations(folder: string): Promise<Migration[]> {
  const names = (await readdir(folder)).filter((name) => /^\d{4}_.*\.sql$/.test(name)).sort()
  return await Promise.all(
    names.map(async (name) => {
      const text = await readFile(new URL(name, asFolderUrl(folder)), 'utf8')
      const checksum = createHash('sha256').update(text).digest('hex')
      return { number: Number(name.slice(0, 4)), name, text, checksum }
    }),
  )
}

function asFolderUrl(folder: string): URL {
  return new URL(`file://${folder.endsWith('/') ? folder : `${folder}/`}`)
}

async function apply(client: pg.Client, { number, name, text, checksum }: Migration) {
  await client.query('BEGIN')
  try {
    await client.query(
      'INSERT INTO holdfast.schema_migrations (number, name, checksum) VALUES ($1, $2, $3)',
      [number, name, checksum],
    )
    await client.query(text)
    await client.query('COMMIT')
  } catch (error) {
    await client.query('ROLLBACK').catch(() => undefined)
    throw error
  }
}

function refuseStrangers(done: readonly Migration[], ours: readonly Migration[]) {
  for (const applied of done) {
    const mine = ours.find((migration) => migration.number === applied.number)
    if (mine && mine.checksum !== applied.checksum) {
      throw new HoldfastError(
        'conflict',
        'migration_changed',
        `Migration ${applied.name} was applied with another text than this version has.`,
      )
    }
  }
}
