import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { wait } from '@holdfast/std'
import { openStore, type Store, violations } from '@holdfast/store'
import { type Child, startChild } from '../support/processes.ts'
import { connect } from '../support/sql.ts'
import { type Meter, startMeter } from './meter.ts'
import type { Server } from './server.ts'

/** A Holdfast of real processes on a new database of the benchmark's server. */
export type Stage = AsyncDisposable & {
  readonly databaseUrl: string
  readonly store: Store
  readonly port: number
  readonly bff: Child
  readonly runners: readonly Child[]
  startRunner(): Promise<Child>
  meter(): Promise<Meter>
  /** p99 of the BFF's event loop delay since this was asked for the last time. */
  loopLagMs(): Promise<number>
}

export type StageOptions = {
  runners: number
  concurrency: number
  env?: Record<string, string>
  /** Called with the empty database before any process starts. */
  prepare?: (databaseUrl: string) => Promise<void>
  /** Where each process leaves its CPU profile when it ends. */
  profileFolder?: string | undefined
}

const AGENTS = {
  default: 'demo',
  agents: {
    demo: { type: 'demo' },
    paced: {
      type: 'module',
      path: fileURLToPath(new URL('./agents/paced.ts', import.meta.url)),
      deadlineMs: 3_600_000,
    },
  },
}

const STOP_MS = 60_000

/** Starts it; disposing ends every process and fails if the database violates an invariant. */
export async function openStage(server: Server, options: StageOptions): Promise<Stage> {
  await using cleanup = new AsyncDisposableStack()
  const database = cleanup.use(await server.database())
  await options.prepare?.(database.url)
  const store = cleanup.use(
    openStore({
      databaseUrl: database.url,
      applicationName: 'bench',
      poolMax: 2,
      // The invariants' queries look at everything that a cell has written.
      statementMs: 120_000,
    }),
  )
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-bench-stage-'))
  cleanup.defer(() => rm(folder, { recursive: true, force: true }))
  const agentsFile = join(folder, 'agents.json')
  await writeFile(agentsFile, JSON.stringify(AGENTS))
  const env = {
    HOLDFAST_DATA_DIR: folder,
    HOLDFAST_AGENTS: agentsFile,
    DATABASE_URL: database.url,
    LOG_LEVEL: 'warn',
    PORT: '0',
    RUNNER_CONCURRENCY: String(options.concurrency),
    RUNNER_METRICS_PORT: '0',
    DRAIN_SECONDS: '0',
    ...options.env,
  }
  const children: Child[] = []
  const runners: Child[] = []
  cleanup.defer(async () => {
    // The invariants' queries read what was written a moment ago, of which the planner knows nothing yet.
    await using sql = await connect(database.url)
    await sql('ANALYZE')
    const found = await violations(store)
    if (found.length) throw new Error(`violations:\n${JSON.stringify(found.slice(0, 20), null, 1)}`)
  })
  cleanup.defer(() => stopAll(children))

  async function start(service: 'bff' | 'runner') {
    const profiling = options.profileFolder
      ? ['--cpu-prof', `--cpu-prof-dir=${options.profileFolder}`]
      : []
    const child = await startChild(service, env, [...profiling, `services/${service}/src/main.ts`])
    children.push(child)
    return child
  }
  async function startRunner() {
    const runner = await start('runner')
    runners.push(runner)
    return runner
  }

  const bff = await start('bff')
  const port = Number(bff.ready['port'])
  while ((await fetch(`http://127.0.0.1:${port}/readyz`)).status !== 200) await wait(20)
  for (let n = 0; n < options.runners; n += 1) await startRunner()
  const ending = cleanup.move()
  return {
    databaseUrl: database.url,
    store,
    port,
    bff,
    runners,
    startRunner,
    loopLagMs: () => loopLagMs(port),
    meter: () =>
      startMeter({
        server,
        databaseUrl: database.url,
        processes: { bff: bff.pid, ...named(runners) },
      }),
    [Symbol.asyncDispose]: () => ending.disposeAsync(),
  }
}

function named(runners: readonly Child[]): Record<string, number> {
  return Object.fromEntries(runners.map(({ pid }, index) => [`runner ${index + 1}`, pid]))
}

async function stopAll(children: readonly Child[]): Promise<void> {
  for (const child of children) child.kill('SIGTERM')
  const late = new AbortController()
  wait(STOP_MS, late.signal).then(
    () => children.forEach((child) => child.kill('SIGKILL')),
    () => undefined,
  )
  await Promise.all(children.map((child) => child.exited))
  late.abort()
}

async function loopLagMs(port: number): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()
  return Number(/^holdfast_event_loop_lag_seconds (\S+)/m.exec(text)?.[1] ?? Number.NaN) * 1000
}
