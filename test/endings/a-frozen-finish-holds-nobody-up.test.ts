// Goal: a runner that freezes in the transaction which ends a run, with its locks held, holds up nobody for longer than
// the database allows. Method: SIGSTOP at the probe inside it; a lease of 6 s, so 1 s of idleness in a transaction.
import { expect, test } from 'vitest'
import { outcomes, readRun, until } from '../chaos/observe.ts'
import { checkRun } from '../support/checker.ts'
import { startProbedRunner } from '../support/probed-runner.ts'
import { answer } from '../support/upstream.ts'
import { openStage, sendTo } from './stage.ts'

const LEASE_MS = 6000
const LOCK_MS = 1000
const IDLE_MS = LEASE_MS / 6

test('a conversation is free again, and its run taken over, when its runner freezes inside the terminal transaction', async () => {
  await using stage = await openStage({ env: { LEASE_SECONDS: `${LEASE_MS / 1000}` } })
  const { holdfast, upstream, url } = stage
  const runner = await startProbedRunner(holdfast)
  const { held } = await runner.hold('insideFinish')
  const { runId, conversationId, exchange } = await stage.begin()
  exchange.finish()
  const inside = await held
  runner.kill('SIGSTOP')
  const frozenAt = performance.now()

  const accepted = await until('a turn is accepted', async () => {
    const sentAt = performance.now()
    const sent = await sendTo(url, conversationId, { onActive: 'enqueue' })
    // Each answer comes in time, also the one that says: later.
    expect(performance.now() - sentAt).toBeLessThan(LOCK_MS + 1000)
    if (sent.status === 202) return sent
    expect(sent.status).toBe(503)
    expect(sent.headers.get('retry-after')).not.toBeNull()
    return false
  })
  expect(performance.now() - frozenAt).toBeLessThan(IDLE_MS + LOCK_MS + 1500)
  expect(accepted.body['state']).toBe('queued')
  expect(await readRun(url, runId)).toMatchObject({ state: 'running', epoch: 1 })

  const heir = await holdfast.startRunner()
  answer(await upstream.exchange(1), 'Said by the heir.')
  answer(await upstream.exchange(2), 'The next turn.')
  const { run, text } = await checkRun(url, runId)
  expect(outcomes(run)).toEqual(['lost', 'succeeded'])
  expect(run.attempts[1]?.runner).toBe(heir.bootId)
  expect(text).toBe('Said by the heir.')
  expect((await checkRun(url, String(accepted.body['runId']))).run.state).toBe('succeeded')

  // What the frozen one has still to say comes to nothing.
  inside.goOn()
  runner.kill('SIGCONT')
  const old = `"runId":"${runId}","epoch":1`
  await until('it notices', () =>
    runner
      .log()
      .split('\n')
      .some((line) => line.includes(old) && /not ours any more|left for recovery/.test(line)),
  )
  expect((await checkRun(url, runId)).run).toMatchObject({ state: 'succeeded', epoch: 2 })
})
