// Goal: no upstream is asked by an attempt that may have been lost since its claim. Method: the log is locked, so that
// a claimed run cannot say that its attempt begins; and an upstream that counts who asks.
import { expect, test } from 'vitest'
import { send } from '../support/api.ts'
import { checkRun } from '../support/checker.ts'
import { startHoldfast } from '../support/holdfast.ts'
import { connect } from '../support/sql.ts'
import { answer, startUpstream } from '../support/upstream.ts'
import { frozen, outcomes, until } from './observe.ts'

test('an upstream is asked when the attempt stands in the log, and not before', async () => {
  await using upstream = await startUpstream()
  await using holdfast = await startHoldfast({
    env: { LEASE_SECONDS: '30' },
    agents: { agents: { remote: { type: 'ag-ui', url: upstream.url } } },
  })
  const [runner] = holdfast.runners
  if (!runner) throw new Error('there is a runner')
  await using sql = await connect(holdfast.databaseUrl)
  let runId = ''
  await frozen(runner, async () => {
    runId = (await send(holdfast.url, 'ask')).runId
    await sql('BEGIN')
    await sql('LOCK TABLE holdfast.run_events IN EXCLUSIVE MODE')
  })
  await until('the claimed run tries to say that it begins', () =>
    runner.log().includes('an append failed'),
  )
  expect(upstream.exchanges).toEqual([])
  await sql('COMMIT')
  answer(await upstream.exchange(0), 'Now.')
  const { run, text } = await checkRun(holdfast.url, runId)
  expect(outcomes(run)).toEqual(['succeeded'])
  expect(text).toBe('Now.')
})
