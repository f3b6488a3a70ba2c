// Goal: a cancel that comes while a run waits for its upstream goes through to it, and leaves a record that says so.
// Method: an upstream that accepts and says nothing, or has not been asked yet, since the attempt is held at its claim.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { cancel, outcomes } from '../chaos/observe.ts'
import { request, send } from '../support/api.ts'
import { attach, checkAll, checkRun } from '../support/checker.ts'
import { type ProbedRunner, startProbedRunner } from '../support/probed-runner.ts'
import { answer } from '../support/upstream.ts'
import { openStage, type Stage, sendTo } from './stage.ts'

let stage: Stage
let runner: ProbedRunner

beforeAll(async () => {
  stage = await openStage({ env: { LEASE_SECONDS: '30' } })
  runner = await startProbedRunner(stage.holdfast)
})

afterEach((context) => checkAll(stage.holdfast, context))

afterAll(() => stage?.[Symbol.asyncDispose]())

test('a silent upstream is let go within a second, the record says stopped, and the conversation is free', async () => {
  const { runId, conversationId, exchange } = await stage.ask()
  const reader = attach(stage.url, runId)
  await reader.seen(({ type }) => type === 'RUN_STARTED')
  expect(await cancel(stage.url, runId)).toBe(202)
  const answeredAt = performance.now()
  expect((await exchange.closed) - answeredAt).toBeLessThan(1000)
  await reader.held
  expect(reader.events.at(-1)).toMatchObject({
    type: 'RUN_FINISHED',
    outcome: { type: 'cancelled' },
  })
  const { run, messages } = await checkRun(stage.url, runId)
  expect(run).toMatchObject({ state: 'stopped', outcome: 'cancelled', error: null })
  expect(messages).toHaveLength(1)
  const n = stage.upstream.exchanges.length
  const next = await sendTo(stage.url, conversationId)
  expect(next.status).toBe(202)
  answer(await stage.upstream.exchange(n), 'At last.')
  expect((await checkRun(stage.url, String(next.body['runId']))).text).toBe('At last.')
})

test('a cancel that comes between the claim and the request keeps the request from being sent', async () => {
  const { upstream, url } = stage
  const n = upstream.exchanges.length
  const { held } = await runner.hold('afterClaim')
  const { runId } = await send(url, 'tell me')
  const { goOn } = await held
  expect(await cancel(url, runId)).toBe(202)
  const { body } = await request(`${url}/runs/${runId}`)
  expect(body).toMatchObject({ state: 'running', cancelRequestedAt: expect.any(String) })
  goOn()
  const { run } = await checkRun(url, runId)
  expect(outcomes(run)).toEqual(['stopped'])
  expect(upstream.exchanges).toHaveLength(n)
})
