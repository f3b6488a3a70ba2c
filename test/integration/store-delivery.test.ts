// Goal: each notification goes to each endpoint under one relay at a time, and no endpoint waits for another. Method:
// the store's own functions, as several relays at once; leases pass because the test moves the due time.
import { randomUUID } from 'node:crypto'
import {
  claimDeliveries,
  expandNotifications,
  listNotifications,
  newId,
  notificationFigures,
  openStore,
  pruneDelivered,
  recordDelivery,
  redriveNotification,
  registerRunner,
  type Store,
  violations,
} from '@holdfast/store'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { ADA, accept, claimOne, finish, recordAgents } from '../support/by-hand.ts'
import { createDatabase, type TestDatabase } from '../support/database.ts'
import { connect, type Sql } from '../support/sql.ts'

const A = 'https://a.test/hook'
const B = 'https://b.test/hook'
const FAILED = { kind: 'failed', status: 500, error: 'answered 500', retryInMs: 60_000 } as const
const CONFIRMED = { kind: 'delivered', status: 200 } as const

let database: TestDatabase
let store: Store
let sql: Sql

beforeEach(async () => {
  database = await createDatabase()
  store = openStore({ databaseUrl: database.url, applicationName: 'test', poolMax: 12 })
  sql = await connect(database.url)
  await recordAgents(store)
})

afterEach(async () => {
  expect(await violations(store)).toEqual([])
  await sql[Symbol.asyncDispose]()
  await store[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

/** Ends so many runs, all with the same notifyUrl if there is one. */
async function ended(count: number, notifyUrl?: string): Promise<string[]> {
  const runIds: string[] = []
  for (let n = 0; n < count; n += 1) {
    const { runId } = await accept(store, notifyUrl ? { notifyUrl } : {})
    await finish(store, (await claimOne(store)).lease)
    runIds.push(runId)
  }
  return runIds
}

type Claiming = Partial<Parameters<typeof claimDeliveries>[1]>

function claim(more: Claiming = {}) {
  return claimDeliveries(store, {
    relay: randomUUID(),
    leaseMs: 60_000,
    canSign: true,
    slots: { perEndpoint: 100, perOrigin: 100, total: 100 },
    inFlight: [],
    ...more,
  })
}

async function claimed(more: Claiming = {}) {
  const [first] = await claim(more)
  if (!first) throw new Error('no delivery is due')
  return first
}

async function listed(filter: Partial<Parameters<typeof listNotifications>[2]> = {}) {
  const page = await listNotifications(store, ADA.tenantId, { limit: 100, ...filter })
  if (page.kind !== 'page') throw new Error(page.kind)
  return page
}

const leasesPass = () =>
  sql(`UPDATE holdfast.deliveries SET next_attempt_at = clock_timestamp() WHERE state = 'pending'`)

test('every notification is expanded once for each endpoint, however many relays do it at once', async () => {
  await ended(12, A)
  const counts = await Promise.all(
    Array.from({ length: 8 }, () => expandNotifications(store, [A, B], 5)),
  )
  while ((await expandNotifications(store, [A, B], 5)) > 0);
  expect(counts.every((count) => count <= 5)).toBe(true)
  const deliveries = await sql<{ endpoint: string; configured: boolean; origin: string }>(
    'SELECT endpoint, configured, origin FROM holdfast.deliveries',
  )
  for (const endpoint of [A, B]) {
    const its = deliveries.filter((delivery) => delivery.endpoint === endpoint)
    expect(its).toHaveLength(12)
    expect(its.every(({ configured }) => configured)).toBe(true)
    expect(new Set(its.map(({ origin }) => origin))).toEqual(new Set([new URL(endpoint).origin]))
  }
})

test('a runner that is not configured decides for those that are', async () => {
  await registerRunner(
    store,
    { bootId: newId(store), name: 'x', pid: 1, agents: [], capacity: 1, metricsUrl: null },
    [],
    [B],
  )
  await ended(1, A)
  await expandNotifications(store, [], 10)
  const found = await sql('SELECT endpoint, configured FROM holdfast.deliveries ORDER BY endpoint')
  expect(found).toEqual([
    { endpoint: A, configured: false },
    { endpoint: B, configured: true },
  ])
})

test('a relay without a secret claims only what owes no signature', async () => {
  await ended(1, A)
  await expandNotifications(store, [B], 10)
  expect((await claim({ canSign: false })).map(({ endpoint }) => endpoint)).toEqual([A])
  expect((await claim()).map(({ endpoint }) => endpoint)).toEqual([B])
})

test('a delivery is claimed by one relay only, until its lease passes', async () => {
  await ended(20)
  await expandNotifications(store, [A, B], 100)
  const claims = (await Promise.all(Array.from({ length: 10 }, () => claim()))).flat()
  const keys = claims.map(({ eventId, endpoint }) => `${eventId} ${endpoint}`)
  expect(new Set(keys).size).toBe(keys.length)
  const rest = await claim()
  expect(keys.length + rest.length).toBe(40)
  expect(await claim()).toEqual([])
  await leasesPass()
  const again = await claim()
  expect(again).toHaveLength(40)
  expect(again.every(({ attempts, step }) => attempts === 2 && step === 2)).toBe(true)
})

test('what a relay records after another has claimed changes nothing', async () => {
  await ended(1)
  await expandNotifications(store, [A], 10)
  const late = await claimed()
  await leasesPass()
  const heir = await claimed()
  expect(heir.body).toBe(late.body)
  expect(await recordDelivery(store, late, CONFIRMED)).toBeNull()
  expect(await recordDelivery(store, late, { ...FAILED, retryInMs: null })).toBeNull()
  expect((await listed()).notifications[0]?.state).toBe('pending')
  expect(await recordDelivery(store, heir, CONFIRMED)).toEqual({
    terminalToDeliveryMs: expect.any(Number),
  })
  expect(await recordDelivery(store, heir, FAILED)).toBeNull()
  expect((await listed()).notifications[0]?.state).toBe('delivered')
})

test('an endpoint with a long backlog takes its slots and no more', async () => {
  await ended(9, `${A}?slow`)
  await ended(3, `${A}?quick`)
  await ended(2, B)
  await expandNotifications(store, [], 100)
  const slots = { perEndpoint: 2, perOrigin: 5, total: 6 }
  const first = await claim({ slots })
  const count = (endpoint: string, of = first) =>
    of.filter((delivery) => delivery.endpoint === endpoint).length
  // The oldest five of its host are all slow; two of them go, the others leave their place.
  expect([count(`${A}?slow`), count(`${A}?quick`), count(B)]).toEqual([2, 0, 2])
  const second = await claim({ slots, inFlight: first })
  expect([count(`${A}?slow`, second), count(`${A}?quick`, second), count(B, second)]).toEqual([
    0, 2, 0,
  ])
  const inFlight = [...first, ...second]
  expect(await claim({ slots, inFlight })).toEqual([])
})

test('of many origins each gets a slot before one gets two', async () => {
  await ended(5, A)
  await ended(1, B)
  await expandNotifications(store, [], 100)
  const slots = { perEndpoint: 4, perOrigin: 16, total: 2 }
  expect((await claim({ slots })).map(({ endpoint }) => endpoint).sort()).toEqual([A, B])
})

test('what is not due is not claimed, and what is dead never is', async () => {
  await ended(2)
  await expandNotifications(store, [A], 10)
  const [later, never] = await claim()
  if (!later || !never) throw new Error('two were due')
  await recordDelivery(store, later, FAILED)
  await recordDelivery(store, never, { ...FAILED, status: 410, retryInMs: null })
  expect(await claim()).toEqual([])
  expect(await notificationFigures(store)).toEqual({ lagSeconds: 0, pending: 1, dead: 1 })
})

test('a redrive makes due what was given up, with the whole schedule before it, and what waits', async () => {
  await ended(1)
  await expandNotifications(store, [A, B], 10)
  const [one, other] = await claim()
  if (!one || !other) throw new Error('two were due')
  const { eventId } = one
  await recordDelivery(store, one, { ...FAILED, retryInMs: null })
  // The other one is being sent: it is left alone.
  expect(await redriveNotification(store, ADA.tenantId, eventId)).toMatchObject({ redriven: 1 })
  const redriven = await claim()
  expect(redriven).toMatchObject([{ endpoint: one.endpoint, attempts: 2, step: 1, eventId }])
  await recordDelivery(store, other, FAILED)
  expect(await redriveNotification(store, ADA.tenantId, eventId)).toMatchObject({ redriven: 1 })
  expect(await claim()).toMatchObject([{ endpoint: other.endpoint, attempts: 2, step: 2 }])
  expect(await redriveNotification(store, ADA.tenantId, eventId)).toMatchObject({ redriven: 0 })
})

test('a redrive finds nothing of another tenant, of nobody, and of a deleted conversation', async () => {
  const [runId] = await ended(1)
  await expandNotifications(store, [A], 10)
  const { eventId } = await claimed()
  expect(await redriveNotification(store, 'other', eventId)).toBeNull()
  expect(await redriveNotification(store, ADA.tenantId, newId(store))).toBeNull()
  await sql(
    `UPDATE holdfast.conversations SET deleted_at = now()
     WHERE id = (SELECT conversation_id FROM holdfast.runs WHERE id = $1)`,
    [runId],
  )
  expect(await redriveNotification(store, ADA.tenantId, eventId)).toBeNull()
  expect((await listed()).notifications).toEqual([])
})

test('notifications are listed newest first, by run, by state and in pages', async () => {
  const runIds = await ended(4)
  await expandNotifications(store, [A, B], 3)
  const deliveries = (await claim()).sort((x, y) => (x.eventId < y.eventId ? -1 : 1))
  for (const [at, delivery] of deliveries.entries()) {
    const dead = { ...FAILED, retryInMs: null }
    // The first run: one dead, one waiting; the second: both delivered; the third: one delivered.
    const result = [dead, FAILED, CONFIRMED, CONFIRMED, CONFIRMED, FAILED][at] ?? FAILED
    await recordDelivery(store, delivery, result)
  }
  const states = (await listed()).notifications.map(({ runId, state }) => [runId, state])
  const expected = ['dead', 'delivered', 'pending', 'pending']
  expect(states).toEqual(runIds.map((runId, at) => [runId, expected[at]]).reverse())
  for (const state of ['dead', 'delivered', 'pending'] as const) {
    const found = (await listed({ state })).notifications.map(({ runId }) => runId)
    expect([state, found.reverse()]).toEqual([
      state,
      runIds.filter((_, at) => expected[at] === state),
    ])
  }
  expect((await listed({ runId: runIds[1] })).notifications).toMatchObject([{ runId: runIds[1] }])
  const first = await listed({ limit: 3 })
  const second = await listed({ limit: 3, cursor: first.nextCursor ?? '' })
  const paged = [...first.notifications, ...second.notifications].map(({ runId }) => runId)
  expect([paged, second.nextCursor]).toEqual([[...runIds].reverse(), null])
  expect(await listNotifications(store, ADA.tenantId, { limit: 1, cursor: 'x' })).toEqual({
    kind: 'bad_cursor',
  })
})

test('what was confirmed long ago is forgotten, and nobody is told again', async () => {
  await ended(2)
  await expandNotifications(store, [A], 10)
  const [old, young] = await claim()
  if (!old || !young) throw new Error('two were due')
  await recordDelivery(store, old, CONFIRMED)
  await recordDelivery(store, young, CONFIRMED)
  await sql(
    `UPDATE holdfast.deliveries SET delivered_at = now() - interval '2 hours' WHERE event_id = $1`,
    [old.eventId],
  )
  await pruneDelivered(store, 3_600_000, 10)
  expect(await sql('SELECT event_id FROM holdfast.deliveries')).toEqual([
    { event_id: young.eventId },
  ])
  expect(await expandNotifications(store, [A], 10)).toBe(0)
  expect((await listed({ state: 'delivered' })).notifications).toHaveLength(2)
})

test('the lag is how long the oldest that is due has been waiting', async () => {
  expect(await notificationFigures(store)).toEqual({ lagSeconds: 0, pending: 0, dead: 0 })
  await ended(1)
  await sql(`UPDATE holdfast.outbox SET created_at = now() - interval '100 seconds'`)
  expect((await notificationFigures(store)).lagSeconds).toBeGreaterThanOrEqual(100)
  await expandNotifications(store, [A], 10)
  await sql(`UPDATE holdfast.deliveries SET next_attempt_at = now() - interval '50 seconds'`)
  const { lagSeconds, pending } = await notificationFigures(store)
  expect([lagSeconds >= 50 && lagSeconds < 100, pending]).toEqual([true, 1])
  await claimed()
  expect((await notificationFigures(store)).lagSeconds).toBe(0)
})
