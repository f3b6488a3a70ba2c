import { wait } from '@holdfast/std'
import { until } from '../../support/readers.ts'
import { type Cell, costs, type Measurement, type Row, type Situation } from '../cell.ts'
import { createRuns } from '../create-runs.ts'
import { plainPipe } from '../peers/floors.ts'
import { openCrowd } from '../readers.ts'
import { openStage } from '../stage.ts'
import { percentile } from '../statistics.ts'

const EVERY_MS = 50
const SETTLE_MS = 3000
const START_MS_MAX = 120_000

/** (a) Agents that each say 20 words a second, and one reader for each. */
export const streamingCell: Cell = {
  letter: 'a',
  title: 'N runs × 20 words/s, each with a reader: created → in the reader’s hands',
  measurements: [
    plainPipe(100),
    streaming(100, 1),
    streaming(250, 1),
    plainPipe(500),
    streaming(500, 1),
    plainPipe(1000),
    streaming(1000, 1),
  ],
}

function streaming(runs: number, runners: number): Measurement {
  return {
    system: 'Holdfast',
    load: `${runs} runs`,
    measure: (situation) => measure(situation, runs, runners),
  }
}

async function measure(
  { server, seconds, profileFolder }: Situation,
  runs: number,
  runners: number,
): Promise<Row['values']> {
  await using stage = await openStage(server, {
    runners,
    concurrency: Math.ceil(runs / runners),
    profileFolder,
  })
  const forMs = START_MS_MAX + SETTLE_MS + seconds * 1000 + 30_000
  const message = JSON.stringify({ everyMs: EVERY_MS, forMs })
  const ids = await createRuns(stage.port, runs, { agent: 'paced', message })
  using crowd = openCrowd(stage.port)
  for (const id of ids) crowd.join(`/runs/${id}/events?after=0`)
  await until('every reader has words', START_MS_MAX, () =>
    crowd.readers.every(({ lastWordAtMs }) => lastWordAtMs > 0),
  )
  await wait(SETTLE_MS)
  await stage.loopLagMs()
  const meter = await stage.meter()
  crowd.reset()
  await wait(seconds * 1000)
  const words = crowd.latenciesMs
  const figures = await meter.stop()
  if (crowd.gaps > 0) throw new Error(`readers saw ${crowd.gaps} gaps`)
  const perSecond = words.length / figures.seconds
  return {
    'words/s': perSecond,
    'offered words/s': (runs * 1000) / EVERY_MS,
    'p50 ms': percentile(words, 0.5),
    'p99 ms': percentile(words, 0.99),
    'BFF loop lag p99 ms': await stage.loopLagMs(),
    ...costs(figures, perSecond),
  }
}
