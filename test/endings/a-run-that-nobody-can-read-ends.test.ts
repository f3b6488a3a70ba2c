// Goal: a run whose saved state cannot be read by anybody ends, and its conversation goes on; it is not claimed again and
// again for ever. Method: the saved fold made nonsense while nobody holds the run.
import { expect, test } from 'vitest'
import { outcomes, until } from '../chaos/observe.ts'
import { isTerminalEvent, readEvents, request } from '../support/api.ts'
import { type Checked, checkRun } from '../support/checker.ts'
import { startProbedRunner } from '../support/probed-runner.ts'
import { connect } from '../support/sql.ts'
import { answer } from '../support/upstream.ts'
import { openStage, sendTo } from './stage.ts'

test('a run whose fold is nonsense ends as failed, with one terminal event, and the next turn runs', async () => {
  await using stage = await openStage({ env: { LEASE_SECONDS: '2' } })
  const { holdfast, upstream, url } = stage
  const victim = await startProbedRunner(holdfast)
  const { runId, conversationId } = await stage.begin('tell me', { agent: 'once' })
  const next = await sendTo(url, conversationId, { onActive: 'enqueue' })
  victim.kill('SIGKILL')
  await victim.exited
  await using sql = await connect(holdfast.databaseUrl)
  await sql(
    `INSERT INTO holdfast.run_folds (run_id, tenant_id, epoch, sequence, fold)
     SELECT id, tenant_id, execution_epoch, last_sequence, '{}' FROM holdfast.runs WHERE id = $1
     ON CONFLICT (run_id) DO UPDATE SET fold = excluded.fold, sequence = excluded.sequence`,
    [runId],
  )
  await holdfast.startRunner()
  const run = await until('it has ended', async () => {
    const { body } = await request(`${url}/runs/${runId}`)
    return body['state'] === 'failed' && (body as unknown as Checked['run'])
  })
  expect(run.error?.code).toBe('internal')
  expect(outcomes(run)[0]).toBe('lost')
  const log = await readEvents(url, runId, { after: 0 })
  expect(log.map(({ event }) => isTerminalEvent(event)).indexOf(true)).toBe(log.length - 1)
  answer(await upstream.exchange(1), 'Life goes on.')
  const { run: after } = await checkRun(url, String(next.body['runId']))
  expect(after.state).toBe('succeeded')
})
