import { randomBytes } from 'node:crypto'
import { mkdtemp } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openCluster, startServer } from '@holdfast/local-postgres'
import { migrate } from '@holdfast/store'
import { connect, type Sql } from '../support/sql.ts'

/** Durable as in production; the rest is what a small machine of its own would get. */
export const SETTINGS = {
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',
  shared_buffers: '1GB',
  max_wal_size: '8GB',
  checkpoint_timeout: '15min',
  max_connections: '200',
  track_io_timing: 'on',
  track_wal_io_timing: 'on',
}

/** A PostgreSQL that the benchmark has for itself. Disposing stops it and removes its folder. */
export type Server = AsyncDisposable & {
  readonly version: string
  /** Of the postmaster, whose children the sessions are. */
  readonly pid: number
  /** As a superuser, in a database that nothing else uses. */
  readonly admin: Sql
  /** A new database, with Holdfast's schema unless it is to be empty. Disposing drops it. */
  database(kind?: 'migrated' | 'empty'): Promise<AsyncDisposable & { readonly url: string }>
}

export async function openServer(more: Record<string, string> = {}): Promise<Server> {
  await using cleanup = new AsyncDisposableStack()
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-bench-'))
  const { signal } = new AbortController()
  const cluster = await openCluster(folder, signal)
  const options = { settings: { ...SETTINGS, ...more }, removeFolder: folder }
  const server = cleanup.use(await startServer(cluster, options, signal))
  const admin = cleanup.use(await connect(server.url))
  const [found] = await admin<{ file: string; version: string }>(
    `SELECT pg_read_file('postmaster.pid') AS file, current_setting('server_version') AS version`,
  )
  const ending = cleanup.move()
  return {
    version: found?.version ?? '',
    pid: Number(found?.file.split('\n')[0]),
    admin,
    async database(kind = 'migrated') {
      const name = `bench_${randomBytes(4).toString('hex')}`
      await admin(`CREATE DATABASE ${name}`)
      const url = new URL(server.url)
      url.pathname = `/${name}`
      if (kind === 'migrated') await migrate(url.href, { info() {} })
      // What was written before must not be written out during what is measured.
      await admin('CHECKPOINT')
      return {
        url: url.href,
        [Symbol.asyncDispose]: async () => void (await admin(`DROP DATABASE ${name} WITH (FORCE)`)),
      }
    },
    [Symbol.asyncDispose]: () => ending.disposeAsync(),
  }
}
