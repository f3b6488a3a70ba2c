import { wait } from '@holdfast/std'
import { startChild } from '../../support/processes.ts'
import { costs, type Measurement, type Row, type Situation } from '../cell.ts'
import { openPoster } from '../create-runs.ts'
import { startMeter } from '../meter.ts'
import { openCrowd } from '../readers.ts'
import { percentile } from '../statistics.ts'

/** One row a request: what HTTP and a durable transaction cost at least. */
export function bareInsert(posters: number): Measurement {
  return {
    system: 'INSERT behind Fastify',
    load: `${posters} posters`,
    measure: (situation) => insert(situation, posters),
  }
}

/** Nothing is kept: what passing bytes on costs at least. */
export function plainPipe(streams: number): Measurement {
  return {
    system: 'undici → Fastify',
    load: `${streams} runs`,
    measure: (situation) => pipe(situation, streams),
  }
}

async function insert({ server, seconds }: Situation, posters: number): Promise<Row['values']> {
  await using database = await server.database('empty')
  await using child = await serve('bare-insert', database.url)
  using poster = openPoster(child.port, posters)
  const ending = new AbortController()
  const took: number[] = []
  const posting = Array.from({ length: posters }, async () => {
    while (!ending.signal.aborted) {
      const beganAt = performance.now()
      await poster.post({ message: '/slow 0 /long 1' })
      took.push(performance.now() - beganAt)
    }
  })
  await wait(1000)
  const processes = { bff: child.pid }
  const meter = await startMeter({ server, databaseUrl: database.url, processes })
  took.length = 0
  await wait(seconds * 1000)
  const figures = await meter.stop()
  const perSecond = took.length / figures.seconds
  ending.abort()
  await Promise.all(posting)
  return {
    'runs/s': perSecond,
    'p50 ms': percentile(took, 0.5),
    'p99 ms': percentile(took, 0.99),
    ...costs(figures, perSecond),
  }
}

async function pipe({ server, seconds }: Situation, streams: number): Promise<Row['values']> {
  await using database = await server.database('empty')
  await using child = await serve('plain-pipe', database.url)
  using crowd = openCrowd(child.port)
  for (let n = 0; n < streams; n += 1) crowd.join('/stream?every=50')
  await wait(3000)
  const processes = { bff: child.pid }
  const meter = await startMeter({ server, databaseUrl: database.url, processes })
  crowd.reset()
  await wait(seconds * 1000)
  const words = crowd.latenciesMs
  const figures = await meter.stop()
  const perSecond = words.length / figures.seconds
  return {
    'words/s': perSecond,
    'offered words/s': streams * 20,
    'p50 ms': percentile(words, 0.5),
    'p99 ms': percentile(words, 0.99),
    ...costs(figures, perSecond),
  }
}

async function serve(script: string, databaseUrl: string) {
  const child = await startChild(
    'bff',
    { DATABASE_URL: databaseUrl },
    `test/bench/peers/${script}.ts`,
  )
  return {
    pid: child.pid,
    port: Number(child.ready['port']),
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL')
      await child.exited
    },
  }
}
