import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { wait } from '@holdfast/std'
import { openStore, type Store, violations } from '@holdfast/store'
import { createDatabase, type TestDatabase } from './database.ts'
import { type Child, deadline, startChild } from './processes.ts'

export type Bff = Child & { readonly url: string }
export type Runner = Child & { readonly bootId: string }

/** A whole Holdfast of real processes on a database of its own. */
export type Holdfast = AsyncDisposable & {
  readonly databaseUrl: string
  /** HOLDFAST_DATA_DIR of all its processes. */
  readonly dataDir: string
  /** For looking into the database. */
  readonly store: Store
  /** The first BFF's address. */
  readonly url: string
  readonly bffs: readonly Bff[]
  readonly runners: readonly Runner[]
  startBff(env?: Record<string, string>): Promise<Bff>
  /** From another entry than its own `main.ts`, if one is given. */
  startRunner(env?: Record<string, string>, script?: string | readonly string[]): Promise<Runner>
}

export type HoldfastOptions = {
  bffs?: number
  runners?: number
  /** The agents file; the built-in demo when left out. */
  agents?: unknown
  env?: Record<string, string>
  bffEnv?: Record<string, string>
  runnerEnv?: Record<string, string>
  /** One on a server of the test's own; else a new one on the server that all share. It is dropped with the rest. */
  database?: TestDatabase
  /** Invariants that the test breaks on purpose, by the beginning of their names. */
  expectViolations?: readonly string[]
}

const STOP_MS = 20_000

/**
 * Starts it; disposing stops every process, and then fails if one of them died by itself, if a process does not
 * end, or if the database violates an invariant.
 */
export async function startHoldfast(options: HoldfastOptions = {}): Promise<Holdfast> {
  await using cleanup = new AsyncDisposableStack()
  const database = cleanup.use(options.database ?? (await createDatabase()))
  const store = cleanup.use(
    openStore({ databaseUrl: database.url, applicationName: 'holdfast test', poolMax: 4 }),
  )
  const agentsFile = options.agents ? await writeAgents(options.agents, cleanup) : undefined
  const dataDir = await mkdtemp(join(tmpdir(), 'holdfast-data-'))
  cleanup.defer(() => rm(dataDir, { recursive: true, force: true }))
  const env = {
    HOLDFAST_DATA_DIR: dataDir,
    DATABASE_URL: database.url,
    LOG_LEVEL: 'info',
    LEASE_SECONDS: '3',
    DRAIN_SECONDS: '5',
    ...options.env,
  }
  const bffs: Bff[] = []
  const runners: Runner[] = []

  async function startBff(more: Record<string, string> = {}): Promise<Bff> {
    const child = await startChild('bff', { ...env, PORT: '0', ...options.bffEnv, ...more })
    const bff = { ...child, url: `http://127.0.0.1:${String(child.ready['port'])}` }
    await serving(bff.url)
    bffs.push(bff)
    return bff
  }

  async function startRunner(
    more: Record<string, string> = {},
    script?: string | readonly string[],
  ): Promise<Runner> {
    const agentsEnv = agentsFile ? { HOLDFAST_AGENTS: agentsFile } : {}
    const runnerEnv = { ...env, ...agentsEnv, ...options.runnerEnv, ...more }
    const child = await startChild('runner', runnerEnv, script)
    const runner = { ...child, bootId: String(child.ready['bootId']) }
    runners.push(runner)
    return runner
  }

  cleanup.defer(async () => {
    const found = (await violations(store)).filter(
      ({ invariant }) => !options.expectViolations?.some((name) => invariant.startsWith(name)),
    )
    if (found.length) throw new Error(`violations:\n${JSON.stringify(found, null, 1)}`)
  })
  cleanup.defer(() => stopAll([...bffs, ...runners]))
  await Promise.all([
    ...Array.from({ length: options.bffs ?? 1 }, () => startBff()),
    ...Array.from({ length: options.runners ?? 1 }, () => startRunner()),
  ])
  const ending = cleanup.move()
  return {
    databaseUrl: database.url,
    dataDir,
    store,
    bffs,
    runners,
    startBff,
    startRunner,
    get url() {
      const [first] = bffs
      if (!first) throw new Error('this Holdfast has no BFF')
      return first.url
    },
    [Symbol.asyncDispose]: () => ending.disposeAsync(),
  }
}

/** A BFF listens before it serves: it waits for the schema. */
async function serving(url: string): Promise<void> {
  const late = AbortSignal.timeout(STOP_MS)
  while ((await fetch(`${url}/readyz`, { signal: late })).status !== 200) {
    await wait(20, late)
  }
}

async function writeAgents(agents: unknown, cleanup: AsyncDisposableStack): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-agents-'))
  cleanup.defer(() => rm(folder, { recursive: true, force: true }))
  const path = join(folder, 'agents.json')
  await writeFile(path, JSON.stringify(agents))
  return path
}

async function stopAll(children: readonly Child[]): Promise<void> {
  const ends = children.map(async (child) => {
    child.kill('SIGCONT')
    child.kill('SIGTERM')
    const end = await Promise.race([
      child.exited,
      deadline(STOP_MS, () => new Error(`pid ${child.pid} does not end:\n${tail(child)}`)),
    ]).finally(() => child.kill('SIGKILL'))
    if (end.code !== 0 && end.signal !== 'SIGKILL') {
      throw new Error(`pid ${child.pid} ended with ${end.code ?? end.signal}:\n${tail(child)}`)
    }
  })
  const failed = (await Promise.allSettled(ends)).filter((end) => end.status === 'rejected')
  if (failed.length) {
    throw new AggregateError(
      failed.map((end) => end.reason),
      'processes did not end as they should',
    )
  }
}

function tail(child: Child): string {
  return child.log().split('\n').slice(-20).join('\n')
}
