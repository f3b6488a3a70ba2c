// Goal: whoever lost its lease writes nothing, with or without somebody else at work, and a write whose reply was
// lost is not written twice. Method: two owners on one database, without processes; leases of a few milliseconds.
import { randomUUID } from 'node:crypto'
import { emptyFold } from '@holdfast/protocol'
import {
  appendEvents,
  type Claimed,
  claimQueued,
  createRun,
  finishRun,
  openStore,
  registerRunner,
  releaseRun,
  renewLeases,
  type Store,
  saveFold,
  takeOver,
  violations,
} from '@holdfast/store'
import { expect, test } from 'vitest'
import { createDatabase } from '../support/database.ts'
import { until } from './observe.ts'

const AGENT = {
  name: 'demo',
  type: 'demo',
  isDefault: true,
  limits: {
    maxAttempts: 3,
    onLost: 'restart',
    effects: 'none',
    deadlineMs: 60_000,
    maxQueueMs: 60_000,
    history: 'all',
  },
} as const
const DEV = { tenantId: 'dev', userId: 'dev', role: 'operator' } as const
const EVENTS = [{ type: 'CUSTOM', json: '{"type":"CUSTOM","name":"x","value":1}' }]

/** A run that is claimed for `leaseMs`. */
async function claimedRun(store: Store, leaseMs: number): Promise<Claimed> {
  const runner = { bootId: randomUUID(), name: 'test', pid: 1, agents: ['demo'], capacity: 1 }
  await registerRunner(store, { ...runner, metricsUrl: null }, [AGENT])
  await createRun(store, DEV, {
    clientTurnId: randomUUID(),
    message: 'hello',
    onActive: 'reject',
  })
  const [claimed] = await claimQueued(store, {
    owner: runner.bootId,
    agents: ['demo'],
    leaseMs,
    limit: 1,
  })
  if (!claimed) throw new Error('a run was there to be claimed')
  return claimed
}

/** Everything that a lease is good for, tried with one that is good for nothing any more. */
async function expectRefused(store: Store, { lease, lastSequence }: Claimed) {
  const append = { lease, base: lastSequence, events: EVENTS }
  expect(await appendEvents(store, [append])).toEqual([])
  expect(await renewLeases(store, [lease], 60_000)).toMatchObject([{ kind: 'lost' }])
  expect(await saveFold(store, lease, lastSequence, emptyFold())).toEqual({ kind: 'fenced' })
  const release = { command: 'hand_back', delayMs: 0, closers: [], fold: emptyFold() } as const
  expect(await releaseRun(store, lease, lastSequence, release)).toEqual({ kind: 'fenced' })
  const finished = finishRun(store, lease, lastSequence, () => {
    throw new Error('nobody may be asked how it ends')
  })
  expect(await finished).toEqual({ kind: 'fenced' })
}

test('a lease that has passed is good for nothing, also before anybody took the run over', async () => {
  await using database = await createDatabase()
  await using store = openStore({ databaseUrl: database.url, applicationName: 'test', poolMax: 2 })
  const old = await claimedRun(store, 1)
  const request = { owner: randomUUID(), agents: ['demo'], leaseMs: 60_000, limit: 1 }
  await expectRefused(store, old)
  const [heir] = await until('the run can be taken over', async () => {
    const taken = await takeOver(store, request)
    return taken.length > 0 && taken
  })
  // The log is as long as the old owner thinks: only the epoch stands between them.
  await expectRefused(store, old)
  if (!heir) throw new Error('the run was taken over')
  const append = { lease: heir.lease, base: heir.lastSequence, events: EVENTS }
  expect(await appendEvents(store, [append])).toMatchObject([{ runId: old.lease.runId }])
  await expectRefused(store, { ...old, lastSequence: heir.lastSequence + 1 })
  expect(await violations(store)).toEqual([])
})

test('a living lease is not taken over, and an append that is sent again is not written again', async () => {
  await using database = await createDatabase()
  await using store = openStore({ databaseUrl: database.url, applicationName: 'test', poolMax: 2 })
  const { lease, lastSequence } = await claimedRun(store, 60_000)
  const request = { owner: randomUUID(), agents: ['demo'], leaseMs: 60_000, limit: 1 }
  expect(await takeOver(store, request)).toEqual([])
  const append = { lease, base: lastSequence, events: EVENTS }
  expect(await appendEvents(store, [append])).toHaveLength(1)
  expect(await appendEvents(store, [append])).toEqual([])
  expect(await renewLeases(store, [lease], 60_000)).toMatchObject([{ kind: 'renewed' }])
  expect(await violations(store)).toEqual([])
})
