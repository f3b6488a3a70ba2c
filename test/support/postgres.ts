import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openCluster, type PostgresServer, startServer } from '@holdfast/local-postgres'
import { migrate } from '@holdfast/store'
import pg from 'pg'
import type { TestProject } from 'vitest/node'

declare module 'vitest' {
  interface ProvidedContext {
    /** For making and dropping databases; tests get their own from `createDatabase`. */
    adminUrl: string
    /** A migrated, empty database that others are cloned from. */
    templateDatabase: string
    /** The browser's program, in the browser suite. */
    chromium: string
  }
}

/** Not synced to the disk: nothing here outlives a power cut, and a killed server loses nothing by it. */
const SETTINGS = {
  fsync: 'off',
  full_page_writes: 'off',
  shared_buffers: '128MB',
  max_connections: '400',
  max_prepared_transactions: '10',
  log_min_messages: 'warning',
  jit: 'off',
}

type Database = { adminUrl: string; templateDatabase: string; close(): Promise<void> }
type Shared = { users: number; database: Promise<Database> }

/** Every suite that needs the server names this file; Vitest loads it for each, the process has one. */
const SHARED = Symbol.for('holdfast.test.postgres')

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const holder = process as unknown as Record<symbol, Shared | undefined>
  const shared = holder[SHARED] ?? { users: 0, database: open() }
  holder[SHARED] = shared
  shared.users += 1
  const { adminUrl, templateDatabase, close } = await shared.database
  project.provide('adminUrl', adminUrl)
  project.provide('templateDatabase', templateDatabase)
  return async () => {
    shared.users -= 1
    if (shared.users > 0) return
    holder[SHARED] = undefined
    await close()
  }
}

async function open(): Promise<Database> {
  const given = process.env['TEST_DATABASE_URL']
  const server = given ? undefined : await startTemporary()
  const adminUrl = given ?? server?.url ?? ''
  const templateDatabase = `holdfast_template_${process.pid}_${Date.now()}`
  await admin(adminUrl, `CREATE DATABASE ${templateDatabase}`)
  const templateUrl = new URL(adminUrl)
  templateUrl.pathname = `/${templateDatabase}`
  await migrate(templateUrl.href, { info() {} })
  async function close() {
    if (server) await server[Symbol.asyncDispose]()
    else await admin(adminUrl, `DROP DATABASE ${templateDatabase} WITH (FORCE)`)
  }
  return { adminUrl, templateDatabase, close }
}

/** Its keeper stops it and removes the folder, also when the tests are killed. */
export async function startTemporary(): Promise<PostgresServer> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-test-'))
  const { signal } = new AbortController()
  const cluster = await openCluster(folder, signal)
  return startServer(cluster, { settings: SETTINGS, removeFolder: folder }, signal)
}

async function admin(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}
