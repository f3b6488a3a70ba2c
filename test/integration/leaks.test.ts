// Goal: runs, readers and cancels leave nothing behind in any process, nor in the database. Method: many short runs
// through one BFF and one runner; both are looked into when all is quiet, before and after. The nightly campaign
// has ten thousand of them.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Reading, readEvents, request, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import type { Inspection } from '../support/inspection.ts'
import type { Child } from '../support/processes.ts'
import { until } from '../support/readers.ts'
import { connect, type Sql } from '../support/sql.ts'
import { answer, startUpstream, type Upstream } from '../support/upstream.ts'

const RUNS = Number(process.env['HOLDFAST_RUNS'] ?? 250)
const WARM_UP = Math.max(150, RUNS / 10)
const AT_ONCE = 20
const QUIET_MS = 30_000
/** Code that is compiled late, and a cache that fills: far less than one object a run. */
const OBJECTS_MAX = 100 + RUNS / 20
/** A thousand bytes a run, or what a collector may leave where there are few. */
const HEAP_BYTES_MAX = Math.max(1_000_000, 1000 * RUNS)
/** Database connections and their idle timers, loops that wait for their next round, and what Node has for itself. */
const AT_REST: Inspection['resources'] = {
  TCPSocketWrap: 30,
  Timeout: 30,
  MessagePort: 5,
  PipeWrap: 5,
  TCPServerWrap: 2,
}
const PRELOAD = new URL('../support/inspection.ts', import.meta.url).href

let upstream: Upstream
let holdfast: Holdfast
let sql: Sql

beforeAll(async () => {
  upstream = await startUpstream((exchange) => answer(exchange, 'A short answer.'))
  const remote = { type: 'ag-ui', url: upstream.url }
  holdfast = await startHoldfast({
    env: { NODE_OPTIONS: `--import=${PRELOAD}`, LOG_LEVEL: 'warn', LEASE_SECONDS: '10' },
    agents: { default: 'remote', agents: { remote, demo: { type: 'demo' } } },
  })
  sql = await connect(holdfast.databaseUrl)
})

afterAll(async () => {
  await sql?.[Symbol.asyncDispose]()
  await holdfast?.[Symbol.asyncDispose]()
  await upstream?.[Symbol.asyncDispose]()
})

/** A connection that is kept for the next request looks like one that was forgotten. */
const headers = { connection: 'close' }

/** One run and what people do with it, by its number. */
async function useOnce(url: string, n: number): Promise<void> {
  const kind = n % 5
  const agent = kind === 2 ? 'demo' : 'remote'
  const { runId } = await send(url, kind === 2 ? '/slow 5 x' : 'x', { agent }, headers)
  const read = (reading: Reading) => readEvents(url, runId, { ...reading, headers })
  const stop = () => request(`${url}/runs/${runId}/cancel?wait=20`, { json: {}, headers })
  if (kind === 0) await read({ after: 0 })
  if (kind === 1) await read({ until: () => true })
  if (kind === 2) await Promise.all([read({ after: 0 }), stop()])
  if (kind === 3) await Promise.all([read({}), read({ after: 0 }), read({ lastEventId: 1 })])
  if (kind === 4) await stop()
}

async function useMany(url: string, count: number): Promise<void> {
  const numbers = Array.from({ length: count }, (_, n) => n).values()
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      for (const n of numbers) await useOnce(url, n)
    }),
  )
  await until('all runs have ended', QUIET_MS, async () => {
    const left = await sql(`SELECT FROM holdfast.runs WHERE state IN ('queued', 'running') LIMIT 1`)
    return left.length === 0
  })
}

let inspections = 0

async function inspect(child: Child): Promise<Inspection> {
  inspections += 1
  const id = inspections
  const answered = child.hears((message) => message['inspected'] === id)
  child.tell({ inspect: id })
  return (await answered) as unknown as Inspection
}

/** Looks again until no more is held than a service needs for itself. */
async function quiet(child: Child): Promise<Inspection> {
  let now = await inspect(child)
  const more = () => Object.entries(now.resources).filter(([kind, n]) => n > (AT_REST[kind] ?? 0))
  await until('sockets and timers are given back', QUIET_MS, async () => {
    now = await inspect(child)
    return more().length === 0
  }).catch((error: unknown) => {
    throw new Error(`${String(error)}: ${JSON.stringify(more())}`)
  })
  return now
}

async function sessions(): Promise<number> {
  const [found] = await sql<{ n: number }>(
    `SELECT count(*)::int AS n FROM pg_stat_activity WHERE datname = current_database()`,
  )
  return found?.n ?? 0
}

test('runs, readers and cancels leave no listener, timer, socket, connection or row behind', async ({
  task,
}) => {
  const { url, bffs, runners } = holdfast
  const processes = Object.entries({ bff: bffs[0], runner: runners[0] }).flatMap(([name, child]) =>
    child ? [{ name, child }] : [],
  )
  await useMany(url, WARM_UP)
  const before = await Promise.all(processes.map(({ child }) => quiet(child)))
  const sessionsBefore = await sessions()

  await useMany(url, RUNS)
  const figures: Record<string, unknown> = { runs: RUNS }
  for (const [at, { name, child }] of processes.entries()) {
    const was = before[at]
    if (!was) throw new Error('it was looked at before')
    const is = await quiet(child)
    const grown = {
      functions: is.objects.functions - was.objects.functions,
      signals: is.objects.signals - was.objects.signals,
      promises: is.objects.promises - was.objects.promises,
      heapBytes: is.heapBytes - was.heapBytes,
    }
    figures[name] = grown
    process.stdout.write(`${name} after ${RUNS} runs: ${JSON.stringify(grown)}\n`)
    expect(Math.max(grown.functions, grown.signals, grown.promises)).toBeLessThan(OBJECTS_MAX)
    expect(grown.heapBytes).toBeLessThan(HEAP_BYTES_MAX)
    expect(child.log()).not.toContain('MaxListenersExceededWarning')
  }
  Object.assign(task.meta, { figures })
  expect(await sessions()).toBeLessThanOrEqual(sessionsBefore)
  expect(await sql('SELECT run_id FROM holdfast.run_folds')).toEqual([])
  expect(await sql('SELECT id FROM holdfast.stale_writes')).toEqual([])
  expect(await sql('SELECT run_id FROM holdfast.run_attempts WHERE ended_at IS NULL')).toEqual([])
  expect(await sql('SELECT boot_id FROM holdfast.runners')).toHaveLength(1)
}, 900_000)
