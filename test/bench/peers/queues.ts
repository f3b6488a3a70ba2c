import { wait } from '@holdfast/std'
import { type Child, startChild } from '../../support/processes.ts'
import { connect } from '../../support/sql.ts'
import { costs, type Measurement, type Row, type Situation } from '../cell.ts'
import { startMeter } from '../meter.ts'

const JOBS = 200_000
const WARM_MS = 500

/** Queues that people would use instead, from a filled queue, as they come and as they are fastest. */
export const queuePeers: readonly Measurement[] = [
  peer('pg-boss 12', 'pg-boss', 'single'),
  peer('pg-boss 12, batches of 50', 'pg-boss', 'batched'),
  peer('graphile-worker 0.18', 'graphile-worker', 'single'),
  peer('graphile-worker 0.18, local queue', 'graphile-worker', 'batched'),
]

function peer(system: string, script: string, mode: 'single' | 'batched'): Measurement {
  return { system, load: 'filled queue', measure: (situation) => drain(situation, script, mode) }
}

async function drain(
  { server, seconds }: Situation,
  script: string,
  mode: string,
): Promise<Row['values']> {
  await using database = await server.database('empty')
  const env = { DATABASE_URL: database.url, PEER_MODE: mode, PEER_JOBS: String(JOBS) }
  const child = await startChild('runner', env, `test/bench/peers/${script}.ts`)
  try {
    await settle(database.url)
    child.tell({ order: 'work' })
    await wait(WARM_MS)
    const processes = { 'runner 1': child.pid }
    const meter = await startMeter({ server, databaseUrl: database.url, processes })
    const before = await countOf(child)
    let after = before
    // The window closes early on a queue that is nearly empty.
    while (after.atMs - before.atMs < seconds * 1000 && after.count < JOBS * 0.9) {
      await wait(50)
      after = await countOf(child)
    }
    const figures = await meter.stop()
    const perSecond = ((after.count - before.count) / (after.atMs - before.atMs)) * 1000
    return { 'runs/s': perSecond, ...costs(figures, perSecond) }
  } finally {
    child.kill('SIGKILL')
    await child.exited
  }
}

/** As Holdfast's own queue is left: the planner knows it, and nothing of its making is still to be written out. */
async function settle(databaseUrl: string) {
  await using sql = await connect(databaseUrl)
  await sql('VACUUM ANALYZE')
  await sql('CHECKPOINT')
}

async function countOf(child: Child): Promise<{ count: number; atMs: number }> {
  const heard = child.hears((message) => 'count' in message)
  child.tell({ order: 'count' })
  const { count, atMs } = await heard
  return { count: Number(count), atMs: Number(atMs) }
}
