// Goal: an endpoint that confirmed a notification, and is told once more because the confirmation was never recorded,
// can tell that it is the same. Method: the relay killed at the probe between answer and record; and an endpoint that
// never confirms, seen through the API alone.
import { expect, test } from 'vitest'
import { until } from '../chaos/observe.ts'
import { request } from '../support/api.ts'
import { checkRun } from '../support/checker.ts'
import { startProbedRunner } from '../support/probed-runner.ts'
import { connect } from '../support/sql.ts'
import { startWebhookSink, type Told } from '../support/webhook-sink.ts'
import { openStage, type Stage } from './stage.ts'

function expectSame(told: readonly Told[]) {
  expect(new Set(told.map(({ headers }) => headers['webhook-id'])).size).toBe(1)
  expect(new Set(told.map(({ body }) => body.eventId)).size).toBe(1)
  expect(new Set(told.map(({ text }) => text)).size).toBe(1)
}

async function ended(stage: Stage, notifyUrl: string): Promise<string> {
  const { runId, exchange } = await stage.begin('tell me', { notifyUrl })
  exchange.finish()
  await checkRun(stage.url, runId)
  return runId
}

test('a confirmation that died with its relay is followed by the same notification', async () => {
  await using sink = await startWebhookSink()
  await using stage = await openStage()
  const { databaseUrl, startRunner } = stage.holdfast
  const relay = await startProbedRunner(stage.holdfast)
  const { held } = await relay.hold('beforeConfirmation')
  const runId = await ended(stage, `${sink.url}/hook`)
  const { eventId } = await held
  relay.kill('SIGKILL')
  await relay.exited
  await startRunner()
  await using sql = await connect(databaseUrl)
  // As half a minute would: the dead one's lease on the delivery.
  await sql(
    `UPDATE holdfast.deliveries SET next_attempt_at = clock_timestamp() WHERE state = 'pending'`,
  )
  const told = await sink.of(runId, 2)
  expectSame(told)
  expect(told[0]?.headers['webhook-id']).toBe(eventId)
})

test('an endpoint that does not confirm is told again, of a result that can be read each time', async () => {
  const read: unknown[] = []
  await using stage = await openStage()
  await using sink = await startWebhookSink(async (told, nth) => {
    read.push((await request(`${stage.url}/runs/${told.body.runId}`)).body['state'])
    told.answer(nth === 0 ? 500 : 200)
  })
  await stage.holdfast.startRunner()
  const runId = await ended(stage, `${sink.url}/hook`)
  const told = await sink.of(runId, 2)
  expectSame(told)
  expect(told[0]?.body).toMatchObject({ type: 'run.succeeded', state: 'succeeded' })
  await until('it is recorded', async () => {
    const { body } = await request(`${stage.url}/notifications?runId=${runId}`)
    return JSON.stringify(body).includes('"delivered"')
  })
  expect(read).toEqual(['succeeded', 'succeeded'])
})
