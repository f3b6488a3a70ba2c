import { wait, within } from '@holdfast/std'
import pg from 'pg'
import { anybody, aRunner, during, type Fault, insist, someMs } from './stage.ts'

const isHeartbeat = (name: string) => /runner (leases|presence)$/.test(name)
const HOLDFAST = `datname = 'campaign' AND application_name ~ '^holdfast[ -]' AND pid <> pg_backend_pid()`
const HEARTBEATS = `application_name ~ 'runner (leases|presence)$'`
const LISTENERS = `application_name ~ ' listen$'`

/** What happens to the database and to the way there. */
export const DATABASE_FAULTS: Readonly<Record<string, Fault>> = {
  async 'sessions terminated'(stage, random) {
    const share = random.pick([0.1, 0.5, 1])
    await insist(stage, terminate(`random() < ${share}`))
    return `${share * 100} % of all`
  },
  async 'heartbeats terminated'(stage) {
    await insist(stage, terminate(HEARTBEATS))
    return 'all at once'
  },
  async 'postgres restarted'(stage) {
    await stage.server.crash()
    await wait(500)
    await insist(stage, 'SELECT 1')
    return 'immediately'
  },
  async 'read only'(stage, random) {
    const ms = random.whole(500, 3000)
    await during(
      ms,
      async () => {
        await insist(stage, 'ALTER SYSTEM SET default_transaction_read_only = on')
        await insist(stage, 'SELECT pg_reload_conf()')
      },
      async () => {
        await insist(stage, 'ALTER SYSTEM RESET default_transaction_read_only')
        await insist(stage, 'SELECT pg_reload_conf()')
      },
    )
    return `${ms} ms`
  },
  async 'network swallows everything'(stage, random) {
    const { name, network } = anybody(stage, random)
    const ms = someMs(stage, random)
    await during(
      ms,
      () => network.blackhole(),
      () => network.restore(),
    )
    return `${name}, ${ms} ms`
  },
  async 'sessions dead without a word'(stage, random) {
    const { name, network } = anybody(stage, random)
    network.forget()
    return name
  },
  async 'replies lost'(stage, random) {
    const { name, network } = aRunner(stage, random)
    const what = random.pick(['holdfast_append', 'commit'])
    await within(2000, network.loseReplies(what, random.whole(1, 4)))
    network.restore()
    return `${name}, ${what}`
  },
  /** Its heartbeat is gone and it lives: others take its runs, and what it still writes must be refused. */
  async 'runner cut off from its heartbeat'(stage, random) {
    const { name, network } = aRunner(stage, random)
    const ms = random.whole(1500, stage.leaseMs)
    await during(
      ms,
      () => network.refuse(isHeartbeat),
      () => network.restore(),
    )
    return `${name}, ${ms} ms`
  },
  async 'commits delayed'(stage, random) {
    const [ms, share] = random.pick([
      [300, 2],
      [1500, 4],
      [stage.leaseMs + 500, 10],
    ] as const)
    const lastMs = random.whole(2000, 4000)
    await insist(
      stage,
      `INSERT INTO campaign.delays VALUES (clock_timestamp() + $1 * interval '1 ms', $2, $3)`,
      [lastMs, share, ms],
    )
    await wait(lastMs)
    await insist(stage, 'DELETE FROM campaign.delays WHERE until <= clock_timestamp()')
    return `${ms} ms for one run in ${share}, for ${lastMs} ms`
  },
  async 'listen dead'(stage, random) {
    if (random.chance(0.5)) {
      await insist(stage, terminate(LISTENERS))
      return 'all terminated'
    }
    const { name, network } = anybody(stage, random)
    network.forget((application) => application.endsWith(' listen'))
    return `${name}, without a word`
  },
  async 'notify lost'(stage, random) {
    const { name, network } = anybody(stage, random)
    const ms = random.whole(1000, 4000)
    await during(
      ms,
      () => network.refuse((application) => application.endsWith(' notify')),
      () => network.restore(),
    )
    return `${name}, ${ms} ms`
  },
  async 'connections exhausted'(stage, random) {
    const ms = random.whole(1000, 3000)
    const hogs: pg.Client[] = []
    await during(
      ms,
      async () => {
        for (let more = true; more && hogs.length < 150; ) {
          const hog = new pg.Client({ connectionString: stage.server.url })
          hog.on('error', () => undefined)
          more = await hog.connect().then(
            () => true,
            () => false,
          )
          if (more) hogs.push(hog)
        }
        // Whoever has to connect from here on cannot.
        await insist(stage, terminate('random() < 0.5'))
      },
      () => Promise.all(hogs.map((hog) => hog.end().catch(() => undefined))),
    )
    return `${hogs.length} taken for ${ms} ms`
  },
  async 'rows locked'(stage, random) {
    const hog = new pg.Client({ connectionString: stage.server.url, connectionTimeoutMillis: 2000 })
    hog.on('error', () => undefined)
    const ms = random.whole(300, 2000)
    const table = random.pick(['runs', 'conversations'])
    const isThere = await hog.connect().then(
      () => true,
      () => false,
    )
    if (!isThere) return null
    await during(
      ms,
      async () => {
        await hog.query('BEGIN').catch(() => undefined)
        await hog
          .query(`SELECT 1 FROM holdfast.${table} WHERE random() < 0.5 FOR UPDATE SKIP LOCKED`)
          .catch(() => undefined)
      },
      () => hog.end().catch(() => undefined),
    )
    return `half of ${table} for ${ms} ms`
  },
}

function terminate(which: string): string {
  return `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${HOLDFAST} AND ${which}`
}
