import { wait } from '@holdfast/std'
import { connect } from '../../support/sql.ts'
import { type Cell, costs, type Row, type Situation } from '../cell.ts'
import { openPoster } from '../create-runs.ts'
import { fillQueue } from '../fill-queue.ts'
import { bareInsert } from '../peers/floors.ts'
import { queuePeers } from '../peers/queues.ts'
import { openStage, type Stage } from '../stage.ts'

/** An agent that says one word and waits for nothing. */
const NO_OP = '/slow 0 /long 1'
const CONCURRENCY = 100
const POSTERS = 32
/** More than can be done in a window. */
const QUEUED = 12_000

/** (b) Runs of an agent that does nothing, each with its events, its message and its notification. */
export const runsCell: Cell = {
  letter: 'b',
  title: 'durable runs of an agent that does nothing',
  measurements: [
    { system: 'Holdfast', load: 'filled queue', measure: fromQueue },
    ...queuePeers,
    bareInsert(POSTERS),
    { system: 'Holdfast', load: `${POSTERS} posters`, measure: fromRequests },
  ],
}

async function fromQueue({ server, seconds, profileFolder }: Situation): Promise<Row['values']> {
  await using stage = await openStage(server, {
    runners: 0,
    concurrency: CONCURRENCY,
    profileFolder,
    prepare: (databaseUrl) => fillQueue(databaseUrl, QUEUED, { message: NO_OP }),
  })
  await stage.startRunner()
  await wait(1000)
  return await measured(stage, seconds, 'started_at')
}

async function fromRequests({ server, seconds, profileFolder }: Situation): Promise<Row['values']> {
  await using stage = await openStage(server, {
    runners: 1,
    concurrency: CONCURRENCY,
    profileFolder,
  })
  using poster = openPoster(stage.port, POSTERS)
  const ending = new AbortController()
  const posting = Array.from({ length: POSTERS }, async () => {
    while (!ending.signal.aborted) await poster.post({ message: NO_OP })
  })
  await wait(2000)
  const values = await measured(stage, seconds, 'created_at')
  ending.abort()
  await Promise.all(posting)
  return values
}

/** What ended within the window, and how long it had taken. */
async function measured(
  stage: Stage,
  seconds: number,
  from: 'started_at' | 'created_at',
): Promise<Row['values']> {
  await using sql = await connect(stage.databaseUrl)
  const meter = await stage.meter()
  const [{ now } = {}] = await sql<{ now: Date }>('SELECT clock_timestamp() AS now')
  await wait(seconds * 1000)
  const [row] = await sql<{ ended: number; p50: number; p99: number; seconds: number }>(
    `SELECT count(*)::int AS ended, max(seconds)::float8 AS seconds,
       percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS p50, percentile_cont(0.99) WITHIN GROUP (ORDER BY ms) AS p99
     FROM (SELECT extract(epoch FROM finished_at - ${from})::float8 * 1000 AS ms,
             extract(epoch FROM clock_timestamp() - $1) AS seconds
           FROM holdfast.runs WHERE finished_at > $1) AS took`,
    [now],
  )
  const figures = await meter.stop()
  if (!row) throw new Error('nothing was measured')
  const perSecond = row.ended / row.seconds
  return {
    'runs/s': perSecond,
    'p50 ms': row.p50,
    'p99 ms': row.p99,
    ...costs(figures, perSecond),
  }
}
