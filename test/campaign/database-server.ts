import { mkdtemp, readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openCluster, startServer } from '@holdfast/local-postgres'
import { migrate } from '@holdfast/store'
import pg from 'pg'

/** A PostgreSQL of the campaign's own, whose faults hit nobody else. */
export type DatabaseServer = AsyncDisposable & {
  /** As Holdfast reaches it: the owner of the database, and no superuser. */
  readonly url: string
  /** Runs one statement as a superuser whom none of the faults hits but the server's death. */
  admin<R extends object = Record<string, unknown>>(text: string, values?: unknown[]): Promise<R[]>
  /** Immediate shutdown: every session is cut in the middle of what it does; its keeper starts it again. */
  crash(): Promise<void>
}

/** Not synced to the disk: a server that dies loses nothing by it, only a machine would. */
const SETTINGS = {
  fsync: 'off',
  full_page_writes: 'off',
  shared_buffers: '128MB',
  max_connections: '120',
  superuser_reserved_connections: '10',
  log_min_messages: 'fatal',
  jit: 'off',
}

/**
 * Chosen rows of `runs` make their transaction wait at its commit: claims, appends, renewals and endings alike, when
 * every statement has been answered and only the last word is missing.
 */
const DELAYS = `
  CREATE SCHEMA campaign;
  CREATE TABLE campaign.delays (until timestamptz NOT NULL, share integer NOT NULL, ms integer NOT NULL);
  CREATE FUNCTION campaign.delay() RETURNS trigger LANGUAGE plpgsql AS $$
  DECLARE delay campaign.delays;
  BEGIN
    SELECT * INTO delay FROM campaign.delays WHERE until > clock_timestamp() LIMIT 1;
    IF FOUND AND abs(hashtext(NEW.id::text)) % delay.share = 0 THEN
      PERFORM pg_sleep(delay.ms / 1000.0);
    END IF;
    RETURN NULL;
  END $$;
  GRANT USAGE ON SCHEMA campaign TO holdfast_app;
  GRANT SELECT ON campaign.delays TO holdfast_app;
  CREATE CONSTRAINT TRIGGER campaign_delay AFTER INSERT OR UPDATE ON holdfast.runs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION campaign.delay()`

/** Starts it with a migrated, empty database; disposing stops it and removes its folder. */
export async function openDatabaseServer(signal: AbortSignal): Promise<DatabaseServer> {
  await using cleanup = new AsyncDisposableStack()
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-campaign-'))
  const cluster = await openCluster(folder, signal)
  const options = { settings: SETTINGS, removeFolder: folder }
  const server = cleanup.use(await startServer(cluster, options, signal))
  await once(server.url, "CREATE ROLE holdfast_app LOGIN PASSWORD 'campaign'")
  await once(server.url, 'CREATE DATABASE campaign OWNER holdfast_app')
  const adminUrl = databaseOf(server.url)
  const url = new URL(adminUrl)
  url.username = 'holdfast_app'
  url.password = 'campaign'
  await migrate(url.href, { info() {} })
  await once(adminUrl, DELAYS)
  const ending = cleanup.move()
  return {
    url: url.href,
    admin: (text, values) => once(adminUrl, text, values),
    async crash() {
      const [pid] = (await readFile(join(cluster.dataFolder, 'postmaster.pid'), 'utf8')).split('\n')
      process.kill(Number(pid), 'SIGQUIT')
    },
    [Symbol.asyncDispose]: () => ending.disposeAsync(),
  }
}

function databaseOf(serverUrl: string): string {
  const url = new URL(serverUrl)
  url.pathname = '/campaign'
  return url.href
}

/** A session for one statement: a longer one would not outlive what the campaign does to the server. */
async function once<R extends object>(url: string, text: string, values?: unknown[]): Promise<R[]> {
  const client = new pg.Client({
    connectionString: url,
    application_name: 'campaign',
    connectionTimeoutMillis: 5000,
    options: '-c default_transaction_read_only=off',
  })
  client.on('error', () => undefined)
  await client.connect()
  try {
    return (await client.query(text, values)).rows as R[]
  } finally {
    await client.end().catch(() => undefined)
  }
}
