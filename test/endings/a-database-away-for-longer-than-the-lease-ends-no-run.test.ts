// Goal: a database that nobody reaches for longer than a lease keeps no run from going on or ending once it is back.
// Method: a network between everything and PostgreSQL that loses all, with runs in every phase; no process restarts.
import { expect, inject, test } from 'vitest'
import { until } from '../chaos/observe.ts'
import { request, send } from '../support/api.ts'
import { checkRun } from '../support/checker.ts'
import { openDatabaseProxy } from '../support/database-proxy.ts'
import { startProbedRunner } from '../support/probed-runner.ts'
import { answer } from '../support/upstream.ts'
import { openStage, sendTo } from './stage.ts'

const LEASE_MS = 3000

test('runs in every phase go on or end when the database is back', async () => {
  await using proxy = await openDatabaseProxy(inject('adminUrl'))
  await using stage = await openStage({ bffs: 0, env: { LEASE_SECONDS: `${LEASE_MS / 1000}` } })
  const { holdfast, upstream } = stage
  const DATABASE_URL = proxy.through(holdfast.databaseUrl)
  const { url } = await holdfast.startBff({ DATABASE_URL })
  const runner = await startProbedRunner(holdfast, { DATABASE_URL })

  const { held } = await runner.hold('beforeFinish')
  const finishing = await stage.begin('to be ended meanwhile')
  finishing.exchange.finish()
  const { goOn } = await held
  const streaming = await stage.begin('to be cut')
  const silent = await stage.ask('to be asked again')
  const parked = await sendTo(url, streaming.conversationId, { onActive: 'enqueue' })
  const { held: claimed } = await runner.hold('afterClaim')
  const begun = await send(url, 'claimed, and no more')
  const { goOn: begin } = await claimed

  const asked = upstream.exchanges.length
  const goneAt = performance.now()
  proxy.blackhole()
  goOn()
  begin()
  // Whoever cannot renew has stopped before its lease could end.
  for (const { exchange } of [streaming, silent])
    expect((await exchange.closed) - goneAt).toBeLessThan(LEASE_MS)
  await until('the end is given up', () => runner.log().includes('is left for recovery'))
  await until('the leases have passed', () => performance.now() - goneAt > LEASE_MS + 1000)
  expect(upstream.exchanges).toHaveLength(asked)
  proxy.restore()

  const again = Promise.all(
    Array.from({ length: 5 }, async (_, at) =>
      answer(await upstream.exchange(asked + at), 'Again.'),
    ),
  )
  const runIds = [finishing, streaming, silent, begun].map(({ runId }) => runId)
  for (const runId of [...runIds, String(parked.body['runId'])]) {
    await until('it has ended', async () => {
      const { body } = await request(`${url}/runs/${runId}`)
      return body['state'] === 'succeeded'
    })
    const { run, text } = await checkRun(url, runId)
    expect(run.state).toBe('succeeded')
    expect(text).toBe('Again.')
  }
  await again
})
