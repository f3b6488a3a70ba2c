// Goal: whatever happens to the relay that is telling an endpoint, the endpoint is told, always under the same id,
// and never by two at once. Method: sinks that kill, freeze or end the runner while they hold its request; leases pass
// because the test moves the due time, as half a minute would.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { send } from '../support/api.ts'
import { type DatabaseProxy, openDatabaseProxy } from '../support/database-proxy.ts'
import { type Holdfast, type Runner, startHoldfast } from '../support/holdfast.ts'
import { connect, type Sql } from '../support/sql.ts'
import { startWebhookSink, type Told } from '../support/webhook-sink.ts'
import { until } from './observe.ts'

let holdfast: Holdfast
let sql: Sql
let proxy: DatabaseProxy

beforeAll(async () => {
  holdfast = await startHoldfast({ runners: 0, env: { DRAIN_SECONDS: '1' } })
  sql = await connect(holdfast.databaseUrl)
  proxy = await openDatabaseProxy(holdfast.databaseUrl)
})

afterAll(async () => {
  await sql?.[Symbol.asyncDispose]()
  await holdfast?.[Symbol.asyncDispose]()
  await proxy?.[Symbol.asyncDispose]()
})

type Delivery = { state: string; attempts: number; relay: string | null }

async function deliveryOf(runId: string): Promise<Delivery | undefined> {
  const [found] = await sql<Delivery>(
    `SELECT d.state, d.attempts, d.relay FROM holdfast.deliveries d
     JOIN holdfast.outbox o ON o.event_id = d.event_id WHERE o.run_id = $1`,
    [runId],
  )
  return found
}

const delivered = (runId: string) =>
  until('it is recorded as delivered', async () => {
    const found = await deliveryOf(runId)
    return found?.state === 'delivered' && found
  })

const leasePasses = () =>
  sql(`UPDATE holdfast.deliveries SET next_attempt_at = clock_timestamp() WHERE state = 'pending'`)

/** A run whose end is told to `url` by the runners that are there. */
async function tell(url: string): Promise<string> {
  return (await send(holdfast.url, '/long 1', { notifyUrl: `${url}/hook` })).runId
}

async function gone(runner: Runner) {
  runner.kill('SIGKILL')
  await runner.exited
}

function sameNotification(told: readonly Told[]) {
  expect(new Set(told.map(({ headers }) => headers['webhook-id'])).size).toBe(1)
  expect(new Set(told.map(({ text }) => text)).size).toBe(1)
}

test('a relay that is killed before the endpoint has answered is followed by another', async () => {
  await using sink = await startWebhookSink((told, nth) => nth > 0 && told.answer(200))
  const victim = await holdfast.startRunner()
  const runId = await tell(sink.url)
  await sink.of(runId)
  await gone(victim)
  const heir = await holdfast.startRunner()
  expect(await deliveryOf(runId)).toMatchObject({ state: 'pending', relay: victim.bootId })
  await leasePasses()
  expect(await delivered(runId)).toEqual({ state: 'delivered', attempts: 2, relay: null })
  sameNotification(await sink.of(runId, 2))
  await gone(heir)
})

test('a confirmation that was lost with its relay costs a repetition under the same id', async () => {
  await using sink = await startWebhookSink((told, nth) => {
    // From here on the relay can be told, but can tell nobody.
    if (nth === 0) proxy.forget()
    told.answer(200)
  })
  const victim = await holdfast.startRunner({ DATABASE_URL: proxy.through(holdfast.databaseUrl) })
  const runId = await tell(sink.url)
  const [first] = (await sink.of(runId)) as [Told]
  await until('the relay has its answer', () => first.isClosed)
  await gone(victim)
  const heir = await holdfast.startRunner()
  expect(await deliveryOf(runId)).toMatchObject({ state: 'pending', attempts: 1 })
  await leasePasses()
  expect(await delivered(runId)).toMatchObject({ attempts: 2 })
  sameNotification(await sink.of(runId, 2))
  await gone(heir)
})

test('a relay that wakes up late does not overwrite what another recorded', async () => {
  const held: Told[] = []
  await using sink = await startWebhookSink((told, nth) => {
    if (nth === 0) held.push(told)
    else told.answer(200)
  })
  const sleeper = await holdfast.startRunner()
  const runId = await tell(sink.url)
  await sink.of(runId)
  sleeper.kill('SIGSTOP')
  const heir = await holdfast.startRunner()
  await leasePasses()
  const recorded = await delivered(runId)
  held[0]?.answer(500)
  sleeper.kill('SIGCONT')
  await until('the late answer has been read', () => held[0]?.isClosed)
  await gone(heir)
  // The sleeper tells the next run, so it has done with the late answer.
  const next = await tell(sink.url)
  await sink.of(next)
  for (const told of held.slice(1)) told.answer(200)
  await delivered(next)
  expect(await deliveryOf(runId)).toEqual(recorded)
  await gone(sleeper)
})

test('a relay that drains lets an endpoint answer, and gives back what hangs', async () => {
  const held: Told[] = []
  await using quick = await startWebhookSink((told) => held.push(told))
  await using hanging = await startWebhookSink((told, nth) => nth > 0 && told.answer(200))
  const leaver = await holdfast.startRunner()
  const [slow, fast] = [await tell(hanging.url), await tell(quick.url)]
  await hanging.of(slow)
  await quick.of(fast)
  leaver.kill('SIGTERM')
  await until('it drains', () => leaver.log().includes('draining'))
  held[0]?.answer(200)
  expect((await leaver.exited).code).toBe(0)
  expect(await deliveryOf(fast)).toEqual({ state: 'delivered', attempts: 1, relay: null })
  expect(await deliveryOf(slow)).toEqual({ state: 'pending', attempts: 1, relay: null })
  await holdfast.startRunner()
  // It is due at once: no lease has to pass.
  expect(await delivered(slow)).toMatchObject({ attempts: 2 })
  sameNotification(await hanging.of(slow, 2))
})
