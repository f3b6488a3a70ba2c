// Goal: when the end of a run cannot be written, nobody is told that it ended; it is counted, tried again, and if that is
// no use left for others, who end it. Method: the session cut in the transaction; a database that refuses the result,
// or takes no events while leases are renewed.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { outcomes, readRun, until } from '../chaos/observe.ts'
import { readEvents, request } from '../support/api.ts'
import { checkAll, checkRun } from '../support/checker.ts'
import { type ProbedRunner, startProbedRunner } from '../support/probed-runner.ts'
import { metric } from '../support/readers.ts'
import { connect, type Sql } from '../support/sql.ts'
import { answer } from '../support/upstream.ts'
import { BEGINNING, openStage, type Stage, text } from './stage.ts'

const FAILURES = 'holdfast_terminal_write_failures_total'

let stage: Stage
let runner: ProbedRunner
let sql: Sql

beforeAll(async () => {
  stage = await openStage({ env: { LEASE_SECONDS: '3' }, runnerEnv: { RUNNER_METRICS_PORT: '0' } })
  runner = await startProbedRunner(stage.holdfast)
  sql = await connect(stage.holdfast.databaseUrl)
})

afterEach((context) => checkAll(stage.holdfast, context))

afterAll(async () => {
  await sql?.[Symbol.asyncDispose]()
  await stage?.[Symbol.asyncDispose]()
})

/** The database refuses rows of this table, with this SQLSTATE, while `body` runs. */
async function refusing(table: string, sqlState: string, body: () => Promise<void>) {
  await sql(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'refused by the test' USING ERRCODE = '${sqlState}'; END $$`)
  await sql(
    `CREATE TRIGGER refuse BEFORE INSERT ON holdfast.${table} FOR EACH ROW EXECUTE FUNCTION refuse()`,
  )
  try {
    await body()
  } finally {
    await sql('DROP FUNCTION refuse() CASCADE')
  }
}

/** It counts the failure; until then and after nothing pretends that the run ended. */
async function expectUnfinished(runId: string, failuresBefore: number) {
  await until('the failure is counted', async () => (await failures()) > failuresBefore)
  expect(await readRun(stage.url, runId)).toMatchObject({
    state: 'running',
    outcome: null,
    finishedAt: null,
  })
  const log = await readEvents(stage.url, runId, {
    after: 0,
    until: (frames) => frames.some(({ event }) => event.type === 'TEXT_MESSAGE_CONTENT'),
  })
  expect(log.filter(({ event }) => /RUN_(FINISHED|ERROR)/.test(event.type))).toEqual([])
  const told = await sql('SELECT FROM holdfast.outbox WHERE run_id = $1', [runId])
  expect(told).toEqual([])
  expect(runner.log()).toContain('is left for recovery')
}

async function failures(): Promise<number> {
  const { body } = await request(`${stage.url}/runners`)
  const [{ metricsUrl }] = body['runners'] as [{ metricsUrl: string }]
  return await metric(metricsUrl.replace(/\/metrics$/, ''), FAILURES)
}

test('a session that is cut inside the terminal transaction costs a second try and nothing else', async () => {
  const { held } = await runner.hold('insideFinish')
  const { runId, exchange } = await stage.begin()
  exchange.finish()
  const { goOn } = await held
  const cut = await sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'idle in transaction'`)
  expect(cut).toHaveLength(1)
  goOn()
  const { run, text: said } = await checkRun(stage.url, runId)
  expect(outcomes(run)).toEqual(['succeeded'])
  expect(said).toBe(BEGINNING)
})

test('a result that the database refuses is no success; the run is left, found, and ended once', async () => {
  const n = stage.upstream.exchanges.length
  const before = await failures()
  let runId = ''
  await refusing('run_results', '23514', async () => {
    const begun = await stage.begin()
    runId = begun.runId
    begun.exchange.finish()
    await expectUnfinished(runId, before)
  })
  answer(await stage.upstream.exchange(n + 1), 'Once more.')
  const { run, text: said } = await checkRun(stage.url, runId)
  expect(outcomes(run)).toEqual(['lost', 'succeeded'])
  expect(said).toBe('Once more.')
})

test('a database that takes no events, though it renews the lease, does not keep an attempt for ever', async () => {
  const n = stage.upstream.exchanges.length
  const before = await failures()
  const begun = await stage.begin()
  await refusing('run_events', '53100', async () => {
    begun.exchange.say(...text('Never to be read. '))
    begun.exchange.finish()
    await expectUnfinished(begun.runId, before)
  })
  answer(await stage.upstream.exchange(n + 1), 'Once more.')
  const { run, text: said } = await checkRun(stage.url, begun.runId)
  expect(outcomes(run)).toEqual(['lost', 'succeeded'])
  expect(said).toBe('Once more.')
})
