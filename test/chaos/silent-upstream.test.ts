// Goal: an upstream that says nothing, too little or breaks costs its own run and no other. Method: a scripted
// AG-UI server that records when its connections are closed; two BFFs, one runner.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { send } from '../support/api.ts'
import { attach, checkAll, checkRun } from '../support/checker.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { opening, startUpstream, type Upstream } from '../support/upstream.ts'
import { cancel, frozen, outcomes } from './observe.ts'

const SOON_MS = 3000

let upstream: Upstream
let holdfast: Holdfast

beforeAll(async () => {
  upstream = await startUpstream()
  const remote = { type: 'ag-ui', url: upstream.url, maxAttempts: 1 }
  holdfast = await startHoldfast({
    bffs: 2,
    env: { LEASE_SECONDS: '30' },
    agents: {
      default: 'remote',
      agents: {
        remote,
        demo: { type: 'demo' },
        short: { ...remote, progressTimeoutMs: 1000 },
        quiet: { ...remote, idleTimeoutMs: 500 },
      },
    },
  })
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await upstream?.[Symbol.asyncDispose]()
})

/** A run whose request has reached the upstream. */
async function sendToUpstream(message: string, more: Record<string, unknown> = {}) {
  const n = upstream.exchanges.length
  const { runId } = await send(holdfast.url, message, more)
  return { runId, exchange: await upstream.exchange(n) }
}

test('a cancel through any BFF closes the connection of a silent upstream within a second', async () => {
  for (const { url } of holdfast.bffs) {
    const { runId, exchange } = await sendToUpstream('are you there?')
    const cancelledAt = performance.now()
    expect(await cancel(url, runId)).toBe(202)
    expect((await exchange.closed) - cancelledAt).toBeLessThan(SOON_MS)
    const { run } = await checkRun(url, runId)
    expect(run).toMatchObject({ state: 'stopped', outcome: 'cancelled' })
    expect(outcomes(run)).toEqual(['stopped'])
  }
})

test("a caller's deadline ends a run that nobody answers, and its connection", async () => {
  const sentAt = performance.now()
  const { runId, exchange } = await sendToUpstream('hurry', { deadlineMs: 1000 })
  const { run } = await checkRun(holdfast.url, runId)
  expect(run).toMatchObject({ state: 'failed', error: { code: 'deadline_exceeded' } })
  const tookMs = (await exchange.closed) - sentAt
  expect(tookMs).toBeGreaterThan(950)
  expect(tookMs).toBeLessThan(1000 + SOON_MS)
})

test('bytes without progress are a stall, and no bytes at all a timeout; what was said is kept', async () => {
  const stalled = await sendToUpstream('think', { agent: 'short' })
  const silent = await sendToUpstream('speak', { agent: 'quiet' })
  for (const { exchange } of [stalled, silent]) exchange.say(...opening(exchange, 'Well'))
  const alive = setInterval(() => stalled.exchange.comment(), 100)
  const checked = await Promise.all(
    [stalled, silent].map(({ runId }) => checkRun(holdfast.url, runId)),
  ).finally(() => clearInterval(alive))
  expect(checked.map(({ run }) => run.error?.code)).toEqual(['stalled', 'upstream_timeout'])
  expect(checked.map(({ text }) => text)).toEqual(['Well', 'Well'])
  for (const { messages } of checked) expect(messages[1]).toMatchObject({ status: 'partial' })
  await Promise.all([stalled.exchange.closed, silent.exchange.closed])
})

test('a reset of one connection ends its run alone', async () => {
  const [runner] = holdfast.runners
  const other = await sendToUpstream('stay')
  const demo = await send(holdfast.url, '/slow 2 go on', { agent: 'demo' })
  const broken = await sendToUpstream('break')
  for (const { exchange } of [other, broken]) exchange.say(...opening(exchange, 'Half a sen'))
  await attach(holdfast.url, broken.runId).seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
  broken.exchange.reset()
  const failed = await checkRun(holdfast.url, broken.runId)
  expect(failed.run).toMatchObject({ state: 'failed', error: { code: 'upstream_truncated' } })
  expect(failed.text).toBe('Half a sen')
  expect(other.exchange.closedAt).toBeNull()
  other.exchange.finish()
  for (const runId of [other.runId, demo.runId]) {
    const { run } = await checkRun(holdfast.url, runId)
    expect(run.attempts).toMatchObject([{ runner: runner?.bootId, outcome: 'succeeded' }])
  }
})

test('an answer that is there in full when a cancel is found pending is kept whole, and the run is stopped', async () => {
  const [runner] = holdfast.runners
  const { runId, exchange } = await sendToUpstream('at the same moment')
  exchange.say(...opening(exchange, 'All of it.'))
  await attach(holdfast.url, runId).seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
  if (!runner) throw new Error('there is a runner')
  // It wakes up to the end of the answer and to the cancel at once.
  await frozen(runner, async () => {
    exchange.finish()
    expect(await cancel(holdfast.url, runId)).toBe(202)
  })
  const { run, text, messages } = await checkRun(holdfast.url, runId)
  expect(run).toMatchObject({ state: 'stopped', outcome: 'cancelled' })
  expect(text).toBe('All of it.')
  expect(messages[1]).toMatchObject({ status: 'complete' })
})
