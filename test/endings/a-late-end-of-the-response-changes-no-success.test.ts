// Goal: once the agent has finished, nothing that happens to connections, deadlines or processes makes its success
// anything else. Method: each of them between the agent's end and the commit, or right after it, held by a probe.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { cancel, until } from '../chaos/observe.ts'
import { readEvents, request } from '../support/api.ts'
import { checkAll, checkRun } from '../support/checker.ts'
import { type ProbedRunner, startProbedRunner } from '../support/probed-runner.ts'
import { connect } from '../support/sql.ts'
import { type Asked, BEGINNING, openStage, type Stage } from './stage.ts'

let stage: Stage
let runner: ProbedRunner

beforeAll(async () => {
  stage = await openStage({ env: { LEASE_SECONDS: '10', DRAIN_SECONDS: '0' } })
  runner = await startProbedRunner(stage.holdfast)
})

afterEach((context) => checkAll(stage.holdfast, context))

afterAll(() => stage?.[Symbol.asyncDispose]())

async function expectSuccess(runId: string) {
  const { run, text, messages } = await checkRun(stage.url, runId)
  expect(run).toMatchObject({ state: 'succeeded', outcome: 'success', error: null })
  expect(run.attempts).toMatchObject([{ epoch: 1, outcome: 'succeeded' }])
  expect(text).toBe(BEGINNING)
  expect(messages[1]).toMatchObject({ status: 'complete' })
}

const BEFORE_THE_COMMIT: Record<string, (asked: Asked) => unknown> = {
  'its upstream resets the connection': ({ exchange }) => exchange.reset(),
  async 'its deadline passes'({ runId }) {
    await using sql = await connect(stage.holdfast.databaseUrl)
    await until('the deadline has passed', async () => {
      const [run] = await sql(
        'SELECT FROM holdfast.runs WHERE id = $1 AND deadline_at < clock_timestamp()',
        [runId],
      )
      return run !== undefined
    })
  },
  async 'its runner is told to end'() {
    runner.kill('SIGTERM')
    await until('it hands back', () => runner.log().includes('handing runs back'))
  },
}

test.for(Object.entries(BEFORE_THE_COMMIT))(
  'a success that is about to be written stays one when %s',
  async ([what, happen]) => {
    const more = what.includes('deadline') ? { deadlineMs: 2000 } : {}
    const { held } = await runner.hold('beforeFinish')
    const asked = await stage.begin('tell me', more)
    asked.exchange.finish()
    const { goOn } = await held
    await happen(asked)
    goOn()
    await expectSuccess(asked.runId)
    if (!what.includes('told to end')) return
    await runner.exited
    runner = await startProbedRunner(stage.holdfast)
  },
)

test('a success that was committed stays one when its readers leave, a cancel comes, and its upstream breaks', async () => {
  const { held } = await runner.hold('afterFinishCommit')
  const { runId, exchange } = await stage.begin()
  exchange.finish()
  const { goOn } = await held
  exchange.reset()
  const late = await request(`${stage.url}/runs/${runId}/cancel`, { json: { reason: 'too late' } })
  expect(late).toMatchObject({ status: 200, body: { state: 'succeeded', cancelRequestedAt: null } })
  goOn()
  await expectSuccess(runId)
})

test('through the API alone: readers that leave, and cancels, after the end change nothing of it', async () => {
  const { runId, exchange } = await stage.begin()
  const leaving = readEvents(stage.url, runId, {
    after: 0,
    until: (frames) => frames.some(({ event }) => event.type === 'TEXT_MESSAGE_END'),
  })
  exchange.finish()
  await leaving
  await expectSuccess(runId)
  for (let again = 0; again < 3; again += 1) expect(await cancel(stage.url, runId)).toBe(200)
  await expectSuccess(runId)
})
