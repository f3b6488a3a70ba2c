// Goal: a file counts when the fenced end of its run names it, and is an orphan exactly when nobody can need it any
// more. Method: attempts by hand; the question that the collector asks, about files of every kind at once.
import { randomUUID } from 'node:crypto'
import { emptyFold } from '@holdfast/protocol'
import {
  cancelRun,
  claimForEnding,
  deleteConversation,
  endOverdueQueued,
  type FoundFile,
  type Lease,
  openStore,
  orphansAmong,
  readArtifact,
  readRun,
  releaseRun,
  type Store,
  takeOver,
  violations,
} from '@holdfast/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ADA, accept, claimOne, finish, logOf, recordAgents } from '../support/by-hand.ts'
import { createDatabase, type TestDatabase } from '../support/database.ts'
import { connect, type Sql } from '../support/sql.ts'

const EVE = { ...ADA, userId: 'eve' }
const FAR = { ...ADA, tenantId: 'other' }

let database: TestDatabase
let store: Store
let sql: Sql

beforeAll(async () => {
  database = await createDatabase()
  store = openStore({ databaseUrl: database.url, applicationName: 'test', poolMax: 4 })
  sql = await connect(database.url)
  await recordAgents(store)
})

afterAll(async () => {
  expect(await violations(store)).toEqual([])
  await sql[Symbol.asyncDispose]()
  await store[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

async function claimed(): Promise<Lease> {
  await accept(store)
  return (await claimOne(store)).lease
}

const file = (runId: string, epoch: number, name = 'a'): FoundFile => ({
  path: `acme/${runId}/${epoch}/1-${name}`,
  runId,
  epoch,
  old: false,
})

const named = ({ path }: FoundFile, name = 'a') => ({
  name,
  path,
  mediaType: 'text/plain',
  bytes: 3,
})

const artifactsOf = async (runId: string) => (await readRun(store, ADA, runId))?.artifacts

async function expire({ runId }: Lease) {
  await sql(`UPDATE holdfast.runs SET lease_until = now() WHERE id = $1`, [runId])
}

const request = () => ({ owner: randomUUID(), agents: ['demo'], leaseMs: 60_000, limit: 50 })

test('files of the current attempt are nobody’s orphans, whether it runs or was handed back', async () => {
  const lease = await claimed()
  const first = file(lease.runId, 1)
  expect(await orphansAmong(store, [first])).toEqual([])
  const nothing = { closers: [], fold: emptyFold() }
  const { length } = await logOf(store, lease.runId)
  await releaseRun(store, lease, length, { command: 'hand_back', delayMs: 0, ...nothing })
  expect(await orphansAmong(store, [first])).toEqual([])
  const again = (await claimOne(store)).lease
  expect([again.runId, again.epoch]).toEqual([lease.runId, 2])
  const second = file(lease.runId, 2)
  expect(await orphansAmong(store, [first, second])).toEqual([first.path])
  await finish(store, again, undefined, undefined, [named(second)])
  expect(await orphansAmong(store, [first, second])).toEqual([first.path])
  expect(await artifactsOf(lease.runId)).toMatchObject([{ name: 'a', bytes: 3 }])
})

test('an attempt that lost its run names nothing', async () => {
  const lost = await claimed()
  await expire(lost)
  const [heir] = await takeOver(store, request())
  expect(heir?.lease.runId).toBe(lost.runId)
  const [mine, theirs] = [file(lost.runId, 1), file(lost.runId, 2)]
  const late = await finish(store, lost, undefined, undefined, [named(mine)])
  expect(late).toEqual({ kind: 'fenced' })
  expect(await artifactsOf(lost.runId)).toEqual([])
  if (heir) await finish(store, heir.lease, undefined, undefined, [named(theirs)])
  expect(await finish(store, lost, undefined, undefined, [named(mine)])).toEqual({ kind: 'fenced' })
  expect(await artifactsOf(lost.runId)).toHaveLength(1)
  expect(await orphansAmong(store, [mine, theirs])).toEqual([mine.path])
})

test('a run that others ended has no files, and what was written for it is an orphan', async () => {
  const dead = await claimed()
  await cancelRun(store, ADA, dead.runId)
  await expire(dead)
  const [ending] = await claimForEnding(store, request())
  expect(ending?.lease.runId).toBe(dead.runId)
  if (ending) await finish(store, ending.lease)
  const queued = await claimed()
  const nothing = { closers: [], fold: emptyFold() }
  await releaseRun(store, queued, 1, { command: 'hand_back', delayMs: 600_000, ...nothing })
  await sql(`UPDATE holdfast.runs SET queue_until = now() WHERE id = $1`, [queued.runId])
  expect((await endOverdueQueued(store, 10)).ended).toEqual([queued.runId])
  const files = [file(dead.runId, 1), file(queued.runId, 1)]
  expect(await orphansAmong(store, files)).toEqual(files.map(({ path }) => path))
})

test('an end names only what it was told, in whatever state it ends', async () => {
  for (const cause of ['stop', 'fail'] as const) {
    const lease = await claimed()
    const [kept, replaced] = [file(lease.runId, 1, 'kept'), file(lease.runId, 1, 'replaced')]
    if (cause === 'stop') await cancelRun(store, ADA, lease.runId)
    await finish(store, lease, { kind: 'error', code: 'agent_error' }, undefined, [named(kept)])
    expect(await orphansAmong(store, [kept, replaced])).toEqual([replaced.path])
    expect(await artifactsOf(lease.runId)).toHaveLength(1)
  }
})

test('a deleted conversation gets no files', async () => {
  const lease = await claimed()
  const mine = file(lease.runId, 1)
  await deleteConversation(store, ADA, lease.conversationId, { cancel: true })
  expect(await finish(store, lease, undefined, undefined, [named(mine)])).toMatchObject({
    state: 'stopped',
  })
  expect(await sql('SELECT * FROM holdfast.artifacts WHERE run_id = $1', [lease.runId])).toEqual([])
  expect(await orphansAmong(store, [mine])).toEqual([mine.path])
})

test('a run that is not there keeps its files for a while', async () => {
  const stray = file(randomUUID(), 1)
  expect(await orphansAmong(store, [stray])).toEqual([])
  expect(await orphansAmong(store, [{ ...stray, old: true }])).toEqual([stray.path])
})

test('a file is found by those who see its run, under its exact name', async () => {
  const lease = await claimed()
  const mine = file(lease.runId, 1)
  await finish(store, lease, undefined, undefined, [named(mine, 'ünï "x".txt')])
  const found = await readArtifact(store, ADA, lease.runId, 'ünï "x".txt')
  expect(found).toEqual(named(mine, 'ünï "x".txt'))
  expect(
    await readArtifact(store, { ...EVE, role: 'operator' }, lease.runId, 'ünï "x".txt'),
  ).toEqual(found)
  expect(await readArtifact(store, EVE, lease.runId, 'ünï "x".txt')).toBeNull()
  expect(await readArtifact(store, FAR, lease.runId, 'ünï "x".txt')).toBeNull()
  expect(await readArtifact(store, ADA, lease.runId, 'x')).toBeNull()
})
