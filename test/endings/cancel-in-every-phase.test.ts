// Goal: whatever a run is doing, and through whatever BFF it comes, a cancel, a stop-and-send or a delete ends it: its
// upstream is closed within a second of the answer, what it said is kept, it ends once, and the next turn runs.
// Method: one row a phase, reached by a probe, a signal or a fault; three ways to stop.

import { purgeDeleted } from '@holdfast/store'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { outcomes, until } from '../chaos/observe.ts'
import { request, send } from '../support/api.ts'
import { attach, type Checked, checkRun } from '../support/checker.ts'
import { type DatabaseProxy, openDatabaseProxy } from '../support/database-proxy.ts'
import { type ProbedRunner, startProbedRunner } from '../support/probed-runner.ts'
import { connect } from '../support/sql.ts'
import { answer, type Exchange } from '../support/upstream.ts'
import { BEGINNING, openStage, type Stage, sendTo } from './stage.ts'

const CLOSE_MS = 1000
const never = new AbortController().signal

let stage: Stage
let hints: DatabaseProxy
/** The BFF through which all is created, one that creates nothing, and one whose hints reach nobody. */
let url: string
let otherUrl: string
let deafUrl: string
let runner: ProbedRunner
let isGone = false

type Reached = {
  runId: string
  conversationId: string
  /** Its connection to the upstream, if there is one. */
  exchange?: Exchange
  /** What it had said. */
  said?: string
  /** The answer was there in full. */
  complete?: boolean
  /** The BFF to stop it through; the other one if left out. */
  through?: string
  /** The turn before it, which is not stopped along by a cancel. */
  before?: string
  /** To be done after it was stopped, so that it can go on. */
  resume?: () => void | Promise<void>
}

const PHASES: Record<string, () => Promise<Reached>> = {
  async queued() {
    runner.kill('SIGSTOP')
    return { ...(await send(url, 'tell me')), resume: () => runner.kill('SIGCONT') }
  },
  async parked() {
    const first = await stage.begin()
    const second = await sendTo(url, first.conversationId, { onActive: 'enqueue' })
    const { runId } = second.body as { runId: string }
    return {
      runId,
      conversationId: first.conversationId,
      before: first.runId,
      resume: () => first.exchange.finish(),
    }
  },
  async claimed() {
    const { held } = await runner.hold('afterClaim')
    const sent = await send(url, 'tell me')
    const { goOn } = await held
    return { ...sent, resume: goOn }
  },
  async streaming() {
    return { ...(await stage.begin()), said: BEGINNING }
  },
  async 'waiting for a silent upstream'() {
    return await stage.ask()
  },
  async 'in a tool'() {
    const begun = await stage.begin()
    const call = { toolCallId: 'c1' }
    begun.exchange.say(
      ...([
        { type: 'TEXT_MESSAGE_END', messageId: 'm1' },
        { type: 'TOOL_CALL_START', ...call, toolCallName: 'search' },
        { type: 'TOOL_CALL_ARGS', ...call, delta: '{}' },
        { type: 'TOOL_CALL_END', ...call },
      ] as never[]),
    )
    await attach(url, begun.runId).seen(({ type }) => type === 'TOOL_CALL_END')
    return { ...begun, said: BEGINNING }
  },
  async finishing() {
    const begun = await stage.begin()
    const { held } = await runner.hold('beforeFinish')
    begun.exchange.finish()
    const { goOn } = await held
    return { ...begun, said: BEGINNING, complete: true, resume: goOn }
  },
  async 'handed back'() {
    const begun = await stage.begin()
    await gone('SIGTERM')
    return { ...begun, said: BEGINNING }
  },
  async 'left by a dead owner'() {
    const begun = await stage.begin()
    await gone('SIGKILL')
    return { ...begun, said: BEGINNING }
  },
  async draining() {
    await gone('SIGTERM')
    const leaving = await startProbedRunner(stage.holdfast, { DRAIN_SECONDS: '30' })
    const begun = await stage.begin()
    leaving.kill('SIGTERM')
    await until('it drains', () => leaving.log().includes('draining'))
    return { ...begun, said: BEGINNING }
  },
  async 'silent, and no hint arrives'() {
    // Its heartbeat would see the mark after ten seconds.
    await gone('SIGTERM')
    runner = await startProbedRunner(stage.holdfast, { LEASE_SECONDS: '30' })
    isGone = false
    return { ...(await stage.ask()), through: deafUrl }
  },
}

beforeAll(async () => {
  hints = await openDatabaseProxy(inject('adminUrl'))
  stage = await openStage({ bffs: 2, env: { DRAIN_SECONDS: '0' } })
  const { databaseUrl, bffs, startBff } = stage.holdfast
  ;[url, otherUrl] = bffs.map((bff) => bff.url) as [string, string]
  deafUrl = (await startBff({ DATABASE_DIRECT_URL: hints.through(databaseUrl) })).url
  hints.blackhole()
  runner = await startProbedRunner(stage.holdfast)
})

afterAll(async () => {
  hints?.restore()
  await stage?.[Symbol.asyncDispose]()
  await hints?.[Symbol.asyncDispose]()
})

async function gone(signal: NodeJS.Signals) {
  runner.kill(signal)
  await runner.exited
  isGone = true
}

/** If the one that had it is gone, somebody must be there to end it, and for the next turn. */
async function replaceIfGone() {
  if (isGone) runner = await startProbedRunner(stage.holdfast)
  isGone = false
}

function expectStopped({ run, text, messages }: Checked, reached: Reached) {
  expect(run).toMatchObject({ state: 'stopped', outcome: 'cancelled' })
  expect(text).toBe(reached.said ?? '')
  for (const { status } of messages.slice(1))
    expect(status).toBe(reached.complete ? 'complete' : 'partial')
}

async function expectClosed({ exchange }: Reached, answeredAt: number) {
  if (exchange) expect((await exchange.closed) - answeredAt).toBeLessThan(CLOSE_MS)
}

test.for(Object.entries(PHASES))('a run that is %s is ended by a cancel', async ([, reach]) => {
  const reached = await reach()
  const asked = stage.upstream.exchanges.length
  const { status } = await request(`${reached.through ?? otherUrl}/runs/${reached.runId}/cancel`, {
    json: {},
  })
  const answeredAt = performance.now()
  expect(status).toBe(202)
  await expectClosed(reached, answeredAt)
  await reached.resume?.()
  await replaceIfGone()
  if (reached.before) await checkRun(url, reached.before)
  expectStopped(await checkRun(url, reached.runId), reached)
  // What was stopped before it began is not begun.
  expect(stage.upstream.exchanges).toHaveLength(asked)
  const again = await request(`${url}/runs/${reached.runId}/cancel`, { json: {} })
  expect(again).toMatchObject({ status: 200, body: { state: 'stopped' } })
})

test.for(Object.entries(PHASES))(
  'a run that is %s gives way to a turn that stops and sends',
  async ([, reach]) => {
    const reached = await reach()
    const n = stage.upstream.exchanges.length
    const next = await sendTo(reached.through ?? otherUrl, reached.conversationId, {
      onActive: 'cancel',
    })
    const answeredAt = performance.now()
    expect(next.status).toBe(202)
    await expectClosed(reached, answeredAt)
    await reached.resume?.()
    await replaceIfGone()
    answer(await stage.upstream.exchange(n), 'The newest answer.')
    expectStopped(await checkRun(url, reached.runId), reached)
    const { run, text } = await checkRun(url, String(next.body['runId']))
    expect(outcomes(run)).toEqual(['succeeded'])
    expect(text).toBe('The newest answer.')
  },
)

test.for(Object.entries(PHASES))(
  'a run that is %s is gone with its conversation, and then from the tables',
  async ([, reach]) => {
    const reached = await reach()
    const reader = attach(url, reached.runId)
    await reader.seen(({ type }) => type === 'RUN_STARTED')
    const { conversationId, runId } = reached
    const { status } = await request(
      `${reached.through ?? otherUrl}/conversations/${conversationId}?cancel=true`,
      { method: 'DELETE' },
    )
    const answeredAt = performance.now()
    expect(status).toBe(204)
    for (const path of [
      `/runs/${runId}`,
      `/runs/${runId}/events`,
      `/conversations/${conversationId}`,
    ])
      expect((await request(`${url}${path}`)).status).toBe(404)
    await expectClosed(reached, answeredAt)
    await reached.resume?.()
    await replaceIfGone()
    // The stream ends, with a terminal event or without, and its client does not come back for ever.
    await Promise.allSettled([reader.held])
    await using sql = await connect(stage.holdfast.databaseUrl)
    await until('it is purged', async () => {
      await purgeDeleted(stage.holdfast.store, 20, async () => undefined, never)
      const [left] = await sql<{ count: number }>(
        `SELECT (SELECT count(*) FROM holdfast.runs WHERE conversation_id = $1)
            + (SELECT count(*) FROM holdfast.conversations WHERE id = $1)
            + (SELECT count(*) FROM holdfast.run_events WHERE run_id = $2) AS count`,
        [conversationId, runId],
      )
      return Number(left?.count) === 0
    })
  },
)
