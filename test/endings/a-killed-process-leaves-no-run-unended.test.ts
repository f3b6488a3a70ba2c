// Goal: whenever the process that executes a run is killed, the run is found, and goes on or ends by its policy, once.
// Method: SIGKILL while it streams, seen through the API alone; then at each boundary of an attempt, held by a probe.
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { frozen, outcomes } from '../chaos/observe.ts'
import { send } from '../support/api.ts'
import { attach, checkAll, checkRun } from '../support/checker.ts'
import type { Runner } from '../support/holdfast.ts'
import { type ProbedRunner, startProbedRunner } from '../support/probed-runner.ts'
import { answer } from '../support/upstream.ts'
import { type Asked, BEGINNING, openStage, type Stage, text } from './stage.ts'

let stage: Stage
let heir: Runner
/** Killed by each test; a new one is there for the next. */
let victim: ProbedRunner

beforeAll(async () => {
  stage = await openStage({ env: { DRAIN_SECONDS: '0' } })
  heir = await stage.holdfast.startRunner()
})

beforeEach(async () => {
  victim = await startProbedRunner(stage.holdfast)
})

afterEach((context) => checkAll(stage.holdfast, context))

afterAll(() => stage?.[Symbol.asyncDispose]())

async function kill() {
  victim.kill('SIGKILL')
  await victim.exited
}

test('a run whose process is killed while it answers is continued by another one', async () => {
  const { upstream, url } = stage
  const n = upstream.exchanges.length
  let runId = ''
  await frozen(heir, async () => {
    runId = (await stage.begin()).runId
    await kill()
  })
  const reader = attach(url, runId)
  answer(await upstream.exchange(n + 1), 'The whole of it.')
  const { run, text: said } = await checkRun(url, runId)
  expect(outcomes(run)).toEqual(['lost', 'succeeded'])
  expect(said).toBe('The whole of it.')
  expect((await reader.held).messages.at(-1)).toMatchObject({ content: 'The whole of it.' })
})

/** How an attempt comes to each boundary, from the middle of its answer unless that is too late. */
const BOUNDARIES = {
  afterClaim: null,
  beforeAppend: ({ exchange }: Asked) => exchange.say(...text('And on. ')),
  beforeFinish: ({ exchange }: Asked) => exchange.finish(),
  insideFinish: ({ exchange }: Asked) => exchange.finish(),
  afterFinishCommit: ({ exchange }: Asked) => exchange.finish(),
  beforeRelease: () => victim.kill('SIGTERM'),
} as const

test.for(Object.entries(BOUNDARIES))(
  'a run whose process is killed at %s ends once, and says so once',
  async ([boundary, approach]) => {
    const { upstream, url } = stage
    const n = upstream.exchanges.length
    let runId = ''
    await frozen(heir, async () => {
      const begun = approach && (await stage.begin())
      const { held } = await victim.hold(boundary)
      if (begun) approach(begun)
      else await send(url, 'tell me')
      runId = (await held).runId
      await kill()
    })
    const isDone = boundary === 'afterFinishCommit'
    if (!isDone) answer(await upstream.exchange(approach ? n + 1 : n), 'From the beginning.')
    const { run, text: said } = await checkRun(url, runId)
    expect(outcomes(run)).toEqual(isDone ? ['succeeded'] : ['lost', 'succeeded'])
    expect(said).toBe(isDone ? BEGINNING : 'From the beginning.')
  },
)

test.for([
  { agent: 'fragile', code: 'runner_lost' },
  { agent: 'once', code: 'attempts_exhausted' },
])('a run that may not be tried again ends with $code, and keeps what it said', async (given) => {
  let runId = ''
  await frozen(heir, async () => {
    runId = (await stage.begin('tell me', { agent: given.agent })).runId
    await kill()
  })
  const { run, text: said, messages } = await checkRun(stage.url, runId)
  expect(run).toMatchObject({ state: 'failed', error: { code: given.code } })
  expect(said).toBe(BEGINNING)
  expect(messages.at(-1)).toMatchObject({ status: 'partial' })
})
