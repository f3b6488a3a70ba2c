// Goal: whoever is to be told of an ended run is told, of every cause, signed, with one id, after the result can be
// read. Method: one Holdfast of real processes and webhook sinks that do what each test says; the oracle for
// signatures is Standard Webhooks' own library.
import { Webhook } from 'standardwebhooks'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { until } from '../chaos/observe.ts'
import { readEvents, readLog, request, send } from '../support/api.ts'
import { recordAgents } from '../support/by-hand.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { connect, type Sql } from '../support/sql.ts'
import { startWebhookSink, type Told, type WebhookSink } from '../support/webhook-sink.ts'

const SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'
const SLOW = '/long 1000 /slow 60'

type Notification = {
  eventId: string
  runId: string
  state: string
  createdAt: string
  deliveries: {
    endpoint: string
    state: string
    attempts: number
    nextAttemptAt: string | null
    lastStatus: number | null
    lastError: string | null
    deliveredAt: string | null
  }[]
}

let holdfast: Holdfast
let sql: Sql
/** The configured endpoint: confirms after it has asked for the run, as a receiver would. */
let everyRun: WebhookSink
/** What the configured endpoint saw of the run before it answered, by event id. */
const readable = new Map<string, unknown>()

beforeAll(async () => {
  everyRun = await startWebhookSink(async (told) => {
    const run = await request(`${holdfast.url}/runs/${told.body.runId}`)
    readable.set(told.body.eventId, { status: run.status, state: run.body['state'] })
    told.answer(204)
  })
  holdfast = await startHoldfast({
    runners: 2,
    // The port is not known before; the second one is nobody's.
    env: { WEBHOOK_URLS: `${everyRun.url}/every?run#part`, WEBHOOK_SECRET: SECRET },
    runnerEnv: { RUNNER_METRICS_PORT: '0' },
  })
  sql = await connect(holdfast.databaseUrl)
})

afterAll(async () => {
  await sql?.[Symbol.asyncDispose]()
  await holdfast?.[Symbol.asyncDispose]()
  await everyRun?.[Symbol.asyncDispose]()
})

/** The notification of a run, as soon as the run has ended. */
function notificationOf(runId: string): Promise<Notification> {
  return until('the run has a notification', async () => {
    const { status, body } = await request(`${holdfast.url}/notifications?runId=${runId}`)
    expect(status).toBe(200)
    const found = body['notifications'] as Notification[]
    expect(found.length).toBeLessThan(2)
    return found[0]
  })
}

function inState(runId: string, state: string): Promise<Notification> {
  return until(`the notification is ${state}`, async () => {
    const found = await notificationOf(runId)
    return found.state === state && found
  })
}

async function deliveryTo(sink: WebhookSink, runId: string) {
  const { deliveries } = await notificationOf(runId)
  return deliveries.find(({ endpoint }) => endpoint.startsWith(sink.url))
}

/** The delivery after so many attempts, none of which was confirmed; nobody is sending it now. */
function failedAt(sink: WebhookSink, runId: string, attempts: number) {
  return until(`attempt ${attempts} is recorded`, async () => {
    const settled = await sql(
      `SELECT FROM holdfast.deliveries WHERE relay IS NULL AND attempts = $2 AND starts_with(endpoint, $3)
         AND event_id = (SELECT event_id FROM holdfast.outbox WHERE run_id = $1)`,
      [runId, attempts, sink.url],
    )
    return settled.length > 0 && (await deliveryTo(sink, runId))
  })
}

function redrive(eventId: string) {
  return request(`${holdfast.url}/notifications/${eventId}/redrive`, { method: 'POST' })
}

function verified({ headers, text }: Told): unknown {
  return new Webhook(SECRET).verify(text, headers as Record<string, string>)
}

async function cancel(runId: string) {
  await request(`${holdfast.url}/runs/${runId}/cancel?wait=10`, { json: {} })
}

/** [what happens, how it is made to, what the notification says besides ids and time]. */
const ENDINGS: readonly [string, (notifyUrl: string) => Promise<string>, object][] = [
  [
    'succeeds',
    async (notifyUrl) => (await send(holdfast.url, '/long 1', { notifyUrl })).runId,
    { type: 'run.succeeded', state: 'succeeded', outcome: 'success' },
  ],
  [
    'fails',
    async (notifyUrl) => (await send(holdfast.url, '/fail', { notifyUrl })).runId,
    {
      type: 'run.failed',
      state: 'failed',
      outcome: 'error',
      error: { code: 'agent_error', message: expect.any(String) },
    },
  ],
  [
    'is stopped while it runs',
    async (notifyUrl) => {
      const { runId } = await send(holdfast.url, SLOW, { notifyUrl })
      await readEvents(holdfast.url, runId, { after: 0, until: (frames) => frames.length >= 4 })
      await cancel(runId)
      return runId
    },
    { type: 'run.stopped', state: 'stopped', outcome: 'cancelled' },
  ],
  [
    'is stopped while it is queued',
    async (notifyUrl) => {
      const { conversationId, runId: first } = await send(holdfast.url, SLOW)
      const more = { conversationId, onActive: 'enqueue', notifyUrl }
      const { runId } = await send(holdfast.url, 'next', more)
      await cancel(runId)
      await cancel(first)
      return runId
    },
    { type: 'run.stopped', state: 'stopped', outcome: 'cancelled' },
  ],
  [
    'waits too long in the queue',
    async (notifyUrl) => {
      await recordAgents(holdfast.store, ['absent'], { maxQueueMs: 1 })
      await sql(`UPDATE holdfast.agents SET is_default = name = 'demo'`)
      return (await send(holdfast.url, 'hello', { agent: 'absent', notifyUrl })).runId
    },
    {
      type: 'run.failed',
      state: 'failed',
      outcome: 'error',
      error: { code: 'queue_timeout', message: expect.any(String) },
    },
  ],
]

test.each(ENDINGS)('a run that %s is told once to each endpoint', async (_what, make, says) => {
  await using sink = await startWebhookSink()
  const runId = await make(`${sink.url}/hook?for=me`)
  const [own] = (await sink.of(runId)) as [Told]
  const [every] = (await everyRun.of(runId)) as [Told]
  const { eventId, deliveries } = await inState(runId, 'delivered')
  const run = (await request(`${holdfast.url}/runs/${runId}`)).body
  for (const told of [own, every]) {
    expect(verified(told)).toEqual({
      eventId,
      runId,
      conversationId: run['conversationId'],
      finishedAt: run['finishedAt'],
      ...says,
    })
    expect(told.headers['webhook-id']).toBe(eventId)
    expect(told.headers['content-type']).toBe('application/json')
  }
  expect([own.path, every.path]).toEqual(['/hook?for=me', '/every?run'])
  expect(own.text).toBe(every.text)
  expect(readable.get(eventId)).toEqual({ status: 200, state: run['state'] })
  expect(deliveries).toHaveLength(2)
  for (const delivery of deliveries) {
    expect(delivery).toMatchObject({ state: 'delivered', attempts: 1, nextAttemptAt: null })
    expect(delivery).toMatchObject({ lastError: null, deliveredAt: expect.stringMatching(/Z$/) })
  }
  expect([sink.told.length, (await everyRun.of(runId)).length]).toEqual([1, 1])
})

test('an endpoint that is configured and named by the run is told once', async () => {
  const { runId } = await send(holdfast.url, '/long 1', { notifyUrl: `${everyRun.url}/every?run` })
  await inState(runId, 'delivered')
  expect(await everyRun.of(runId)).toHaveLength(1)
})

test('two relays share a burst, and each endpoint is told of each run once', async () => {
  await using sink = await startWebhookSink()
  const notifyUrl = `${sink.url}/hook`
  const sent = await Promise.all(
    Array.from({ length: 30 }, () => send(holdfast.url, '/long 1', { notifyUrl })),
  )
  await sink.seen(() => true, 30)
  for (const { runId } of sent) await inState(runId, 'delivered')
  expect(sink.told.map(({ body }) => body.runId).sort()).toEqual(
    sent.map(({ runId }) => runId).sort(),
  )
})

test('an attempt that fails in any way comes again, with the same id and the same bytes', async () => {
  await using sink = await startWebhookSink((told, nth) => {
    if (nth === 0) told.answer(500)
    else if (nth === 1) told.reset()
    else if (nth === 2) told.answer(302, { location: `${everyRun.url}/stray` })
    else if (nth === 3) told.answer(503, { 'retry-after': '2592000' })
    else told.answer(200)
  })
  const { runId } = await send(holdfast.url, '/long 1', { notifyUrl: `${sink.url}/hook` })
  await sink.of(runId)
  const failedFrom = performance.now()
  expect(await failedAt(sink, runId, 1)).toMatchObject({ lastStatus: 500, state: 'pending' })
  await sink.of(runId, 2)
  expect(performance.now() - failedFrom).toBeLessThan(10_000)
  const { lastStatus, lastError } = await failedAt(sink, runId, 2)
  expect([lastStatus, lastError]).toEqual([null, expect.stringMatching(/^not reached: /)])
  const { eventId } = await notificationOf(runId)
  // Whoever does not want to wait for the next attempt redrives it.
  for (const [attempts, status] of [
    [3, 302],
    [4, 503],
  ] as const) {
    expect((await redrive(eventId)).status).toBe(202)
    await sink.of(runId, attempts)
    expect(await failedAt(sink, runId, attempts)).toMatchObject({ lastStatus: status })
  }
  const waiting = await deliveryTo(sink, runId)
  const waitMs = Date.parse(waiting?.nextAttemptAt ?? '') - Date.now()
  expect(waitMs).toBeGreaterThan(50 * 60_000)
  expect(waitMs).toBeLessThan(70 * 60_000)
  expect((await redrive(eventId)).status).toBe(202)
  await inState(runId, 'delivered')
  const told = await sink.of(runId, 5)
  expect(told).toHaveLength(5)
  expect(new Set(told.map(({ text }) => text)).size).toBe(1)
  expect(new Set(told.map(({ headers }) => headers['webhook-id']))).toEqual(new Set([eventId]))
  for (const each of told) verified(each)
  expect(everyRun.told.some(({ path }) => path === '/stray')).toBe(false)
})

test('an endpoint that is gone is given up, listed as dead, and told when it is redriven', async () => {
  let gone = true
  await using sink = await startWebhookSink((told) => told.answer(gone ? 410 : 200))
  const { runId } = await send(holdfast.url, '/long 1', { notifyUrl: `${sink.url}/hook` })
  const { eventId } = await inState(runId, 'dead')
  const dead = await request(`${holdfast.url}/notifications?state=dead`)
  expect((dead.body['notifications'] as Notification[]).map((each) => each.runId)).toEqual([runId])
  expect(await deliveryTo(sink, runId)).toMatchObject({ lastError: 'answered 410', attempts: 1 })
  gone = false
  const answer = await redrive(eventId)
  expect([answer.status, answer.body['state']]).toEqual([202, 'pending'])
  await inState(runId, 'delivered')
  const again = await redrive(eventId)
  expect([again.status, again.body['state']]).toEqual([200, 'delivered'])
  const told = await sink.of(runId)
  expect(told.map(({ body }) => body.eventId)).toEqual([eventId, eventId])
  // The other endpoint had confirmed; it is not told again.
  expect(await everyRun.of(runId)).toHaveLength(1)
})

test('an endpoint that never confirms is given up after the last attempt of the schedule', async () => {
  await using sink = await startWebhookSink((told) => told.answer(500))
  const { runId } = await send(holdfast.url, '/long 1', { notifyUrl: `${sink.url}/hook` })
  await failedAt(sink, runId, 1)
  await sql(
    `UPDATE holdfast.deliveries SET attempts = 10, next_attempt_at = now() WHERE endpoint = $1`,
    [`${sink.url}/hook`],
  )
  await inState(runId, 'dead')
  expect(await deliveryTo(sink, runId)).toMatchObject({ attempts: 11, nextAttemptAt: null })
})

test('an endpoint that hangs delays no other, not even of the same server', async () => {
  const hanging: Told[] = []
  await using sink = await startWebhookSink((told) => {
    if (told.path.startsWith('/hang')) hanging.push(told)
    else told.answer(200)
  })
  const tell = (path: string) =>
    send(holdfast.url, '/long 1', { notifyUrl: `${sink.url}${path}` }).then(({ runId }) => runId)
  await Promise.all(Array.from({ length: 12 }, () => tell('/hang')))
  // Two relays, each with its slots for one endpoint.
  await sink.seen(({ path }) => path === '/hang', 8)
  const hungAt = performance.now()
  const told = await Promise.all(['/ok', '/ok', '/fine'].map(tell))
  for (const runId of told) await inState(runId, 'delivered')
  const heldMs = performance.now() - hungAt
  expect([heldMs < 15_000, hanging.map(({ isClosed }) => isClosed)]).toEqual([
    true,
    Array.from({ length: 8 }, () => false),
  ])
  // An attempt has fifteen seconds; then those that waited behind it get its slots.
  await until('the attempts are cut', () => hanging.slice(0, 8).every(({ isClosed }) => isClosed))
  expect(performance.now() - hungAt).toBeGreaterThan(14_000)
  await sink.seen(({ path }) => path === '/hang', 12)
  for (const each of hanging) each.answer(200)
})

test('a run whose conversation was deleted is told to nobody', async () => {
  const { runId, conversationId } = await send(holdfast.url, SLOW)
  await readEvents(holdfast.url, runId, { after: 0, until: (frames) => frames.length >= 4 })
  const url = `${holdfast.url}/conversations/${conversationId}?cancel=true`
  expect((await request(url, { method: 'DELETE' })).status).toBe(204)
  await until('the run is purged', async () => {
    const left = await sql('SELECT id FROM holdfast.runs WHERE id = $1', [runId])
    return left.length === 0
  })
  const { runId: later } = await send(holdfast.url, '/long 1')
  await everyRun.of(later)
  expect(everyRun.told.filter(({ body }) => body.runId === runId)).toEqual([])
})

test('what waits to be told of a conversation goes with it', async () => {
  await using sink = await startWebhookSink((told) => told.answer(500))
  const more = { notifyUrl: `${sink.url}/hook` }
  const { runId, conversationId } = await send(holdfast.url, '/long 1', more)
  await failedAt(sink, runId, 1)
  const { eventId } = await notificationOf(runId)
  const url = `${holdfast.url}/conversations/${conversationId}`
  expect((await request(url, { method: 'DELETE' })).status).toBe(204)
  expect((await request(`${holdfast.url}/notifications?runId=${runId}`)).body).toEqual({
    notifications: [],
    nextCursor: null,
  })
  expect((await redrive(eventId)).status).toBe(404)
  await until('it is purged', async () => {
    const left = await sql('SELECT event_id FROM holdfast.deliveries WHERE event_id = $1', [
      eventId,
    ])
    return left.length === 0
  })
})

test('lag and deliveries are on the BFF’s metrics, the time to confirmation on the runners’', async () => {
  const { runId } = await send(holdfast.url, '/long 1')
  await readLog(holdfast.url, runId)
  await inState(runId, 'delivered')
  const bff = String((await request(`${holdfast.url}/metrics`)).body['text'])
  expect(bff).toMatch(/^holdfast_outbox_lag_seconds [\d.e-]+$/m)
  expect(bff).toMatch(/^holdfast_deliveries\{state="dead"\} \d+$/m)
  const { runners } = (await request(`${holdfast.url}/runners`)).body
  const texts = await Promise.all(
    (runners as { metricsUrl: string | null }[]).flatMap(({ metricsUrl }) =>
      metricsUrl ? request(metricsUrl).then(({ body }) => String(body['text'])) : [],
    ),
  )
  const counts = texts.map((text) =>
    Number(/^holdfast_terminal_to_delivery_seconds_count (\d+)$/m.exec(text)?.[1]),
  )
  expect(counts.reduce((sum, count) => sum + count, 0)).toBeGreaterThan(0)
})
