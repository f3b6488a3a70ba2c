// Goal: a worker that stalls, loses its run to another one and comes back changes nothing: no event, no state, no
// message. Method: SIGSTOP while it streams, seen through the API; then where its next write is a flush, a hand-back or
// the end, held by a probe, so that it is sure to try.
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { frozen, outcomes, until } from '../chaos/observe.ts'
import { request } from '../support/api.ts'
import { checkAll, checkRun } from '../support/checker.ts'
import type { Runner } from '../support/holdfast.ts'
import { type ProbedRunner, startProbedRunner } from '../support/probed-runner.ts'
import { connect } from '../support/sql.ts'
import { answer, type Exchange } from '../support/upstream.ts'
import { type Asked, openStage, type Stage, text } from './stage.ts'

let stage: Stage
let heir: Runner
let old: ProbedRunner

beforeAll(async () => {
  stage = await openStage({ env: { LEASE_SECONDS: '2', DRAIN_SECONDS: '0' } })
  heir = await stage.holdfast.startRunner()
})

beforeEach(async () => {
  old = await startProbedRunner(stage.holdfast)
})

afterEach(async (context) => {
  old.kill('SIGTERM')
  await old.exited
  await checkAll(stage.holdfast, context)
})

afterAll(() => stage?.[Symbol.asyncDispose]())

test('what a stalled worker still hears from its upstream is not said any more', async () => {
  const n = stage.upstream.exchanges.length
  let begun: Asked | undefined
  await frozen(heir, async () => {
    begun = await stage.begin()
    old.kill('SIGSTOP')
  })
  if (!begun) throw new Error('a turn was begun')
  answer(await stage.upstream.exchange(n + 1), 'Said by the heir.')
  const before = await checkRun(stage.url, begun.runId)
  begun.exchange.say(...text('Said by the old one. '))
  begun.exchange.finish()
  old.kill('SIGCONT')
  await begun.exchange.closed
  const after = await checkRun(stage.url, begun.runId)
  expect(after).toEqual(before)
  expect(outcomes(after.run)).toEqual(['lost', 'succeeded'])
  expect(after.text).toBe('Said by the heir.')
})

const WRITES = {
  beforeAppend: {
    operation: 'append',
    approach: ({ exchange }: Asked) => exchange.say(...text('Late. ')),
  },
  beforeFinish: { operation: 'finish', approach: ({ exchange }: Asked) => exchange.finish() },
  beforeRelease: { operation: 'hand_back', approach: () => old.kill('SIGTERM') },
} as const

test.for(Object.entries(WRITES))(
  'a worker that comes back at %s is refused, and the refusal is written down',
  async ([probe, { operation, approach }]) => {
    const n = stage.upstream.exchanges.length
    let runId = ''
    let goOn = () => undefined as void
    let exchange: Exchange | undefined
    await frozen(heir, async () => {
      const begun = await stage.begin()
      ;({ runId, exchange } = begun)
      const { held } = await old.hold(probe)
      approach(begun)
      ;({ goOn } = await held)
      old.kill('SIGSTOP')
    })
    answer(await stage.upstream.exchange(n + 1), 'Said by the heir.')
    const before = await checkRun(stage.url, runId)
    old.kill('SIGCONT')
    // It knows; the write is on its way all the same.
    await exchange?.closed
    goOn()
    await using sql = await connect(stage.holdfast.databaseUrl)
    const refused = await until('the refusal is in the ledger', async () => {
      const rows = await sql<{ operation: string; epoch: number; current_epoch: number }>(
        'SELECT operation, epoch, current_epoch FROM holdfast.stale_writes WHERE run_id = $1 AND operation = $2',
        [runId, operation],
      )
      return rows.length > 0 && rows
    })
    expect(refused).toMatchObject([{ epoch: 1, current_epoch: 2 }])
    expect(await checkRun(stage.url, runId)).toEqual(before)
    const { body } = await request(`${stage.url}/conversations/${before.run.conversationId}`)
    expect(body['activeRun']).toBeNull()
  },
)
