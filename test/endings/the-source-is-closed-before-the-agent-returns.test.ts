// Goal: however an attempt ends, the connection to its upstream is closed before anything is written about that end, and
// not some time later. Method: an upstream that never closes by itself; the attempt held where its end is to be written.
import { within } from '@holdfast/std'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { cancel } from '../chaos/observe.ts'
import { request } from '../support/api.ts'
import { checkAll, checkRun } from '../support/checker.ts'
import { type ProbedRunner, startProbedRunner } from '../support/probed-runner.ts'
import { BEGINNING, openStage, type Stage, text } from './stage.ts'

/** Between two processes; nothing that the held attempt could still do would help. */
const SEEN_MS = 2000

let stage: Stage
let runner: ProbedRunner

beforeAll(async () => {
  stage = await openStage({ env: { DRAIN_SECONDS: '0', LEASE_SECONDS: '30' } })
  runner = await startProbedRunner(stage.holdfast)
})

afterEach((context) => checkAll(stage.holdfast, context))

afterAll(() => stage?.[Symbol.asyncDispose]())

type Begun = Awaited<ReturnType<Stage['begin']>>

const ENDS: Record<string, { state: string; bring(begun: Begun): unknown }> = {
  'its upstream says that it has finished, and stays': {
    state: 'succeeded',
    bring({ exchange }) {
      const { threadId, runId } = exchange.input
      exchange.say(
        { type: 'TEXT_MESSAGE_END', messageId: 'm1' } as never,
        { type: 'RUN_FINISHED', threadId, runId } as never,
      )
    },
  },
  'its upstream says that it has failed, and stays': {
    state: 'failed',
    bring: ({ exchange }) => exchange.say({ type: 'RUN_ERROR', message: 'no' } as never),
  },
  'it is cancelled right after the first chunk': {
    state: 'stopped',
    bring: ({ runId }) => cancel(stage.url, runId),
  },
}

test.for(Object.entries(ENDS))(
  'the source is closed first when %s',
  async ([, { state, bring }]) => {
    const begun = await stage.begin()
    const { held } = await runner.hold('beforeFinish')
    await bring(begun)
    const { goOn } = await held
    expect(await within(SEEN_MS, begun.exchange.closed)).toBeDefined()
    expect((await request(`${stage.url}/runs/${begun.runId}`)).body).toMatchObject({
      state: 'running',
    })
    goOn()
    const { run, text: said } = await checkRun(stage.url, begun.runId)
    expect(run.state).toBe(state)
    expect(said).toBe(BEGINNING)
  },
)

test('the source is closed first when the deadline comes in the middle of its answer', async () => {
  const { held } = await runner.hold('beforeFinish')
  const { runId, exchange } = await stage.begin('tell me', { deadlineMs: 1500 })
  const { goOn } = await held
  expect(await within(SEEN_MS, exchange.closed)).toBeDefined()
  goOn()
  expect((await checkRun(stage.url, runId)).run).toMatchObject({
    state: 'failed',
    error: { code: 'deadline_exceeded' },
  })
})

test('the source is closed first when the run is given back', async () => {
  const { runId, exchange } = await stage.begin()
  const { held } = await runner.hold('beforeRelease')
  runner.kill('SIGTERM')
  const { goOn } = await held
  expect(await within(SEEN_MS, exchange.closed)).toBeDefined()
  goOn()
  await runner.exited
  expect(await cancel(stage.url, runId)).toBe(202)
  runner = await startProbedRunner(stage.holdfast)
})

test('through the API alone: who stops a run at its first chunk finds it closed when it has ended', async () => {
  const { runId, exchange } = await stage.begin()
  // An upstream that does not listen, and goes on talking.
  const talking = setInterval(() => exchange.say(...text('And on. ')), 5)
  const { status, body } = await request(`${stage.url}/runs/${runId}/cancel?wait=10`, { json: {} })
  expect([status, body['state']]).toEqual([200, 'stopped'])
  expect(await within(SEEN_MS, exchange.closed)).toBeDefined()
  clearInterval(talking)
  const { messages } = await checkRun(stage.url, runId)
  expect(messages[1]).toMatchObject({ status: 'partial' })
})
