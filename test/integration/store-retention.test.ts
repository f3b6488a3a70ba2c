// Goal: a day of the log is forgotten when it is old enough and nothing in it lives; what the runs said stays. Method: runs
// accepted under a clock of ten days ago, whose ids carry that time, in a partition of that day.
import { dropPartition, openStore, readEvents, readPrelude, violations } from '@holdfast/store'
import { afterEach, expect, test, vi } from 'vitest'
import { ADA, accept, claimOne, finish, recordAgents } from '../support/by-hand.ts'
import { createDatabase } from '../support/database.ts'
import { connect } from '../support/sql.ts'

const AGO_DAYS = 10

afterEach(() => void vi.useRealTimers())

test('an old day is dropped once its last run has ended, and a younger one is kept', async () => {
  await using database = await createDatabase()
  const { url: databaseUrl } = database
  await using store = openStore({ databaseUrl, applicationName: 'test', poolMax: 2 })
  await using sql = await connect(databaseUrl)
  const [old] = await sql<{ name: string }>(
    `SELECT 'run_events_' || to_char((now() AT TIME ZONE 'UTC') - make_interval(days => $1), 'YYYYMMDD') AS name`,
    [AGO_DAYS],
  )
  const day = (days: string) =>
    `holdfast.uuidv7_floor((date_trunc('day', now() AT TIME ZONE 'UTC') - interval '${days} days') AT TIME ZONE 'UTC')`
  await sql(`DO $$ BEGIN EXECUTE format('CREATE TABLE holdfast.${old?.name} PARTITION OF holdfast.run_events
    FOR VALUES FROM (%L) TO (%L)', ${day(`${AGO_DAYS}`)}, ${day(`${AGO_DAYS - 1}`)}); END $$`)
  await recordAgents(store)
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() - AGO_DAYS * 86_400_000 })
  const run = await accept(store)
  vi.useRealTimers()
  expect(await dropPartition(store, 1)).toBeNull()
  const { lease } = await claimOne(store)
  await finish(store, lease)
  expect(await dropPartition(store, AGO_DAYS + 1)).toBeNull()
  expect((await readEvents(store, run.runId, 0, 10)).kind).toBe('events')
  expect(await dropPartition(store, AGO_DAYS - 1)).toBe(old?.name)
  expect(await dropPartition(store, 1)).toBeNull()
  expect(await readEvents(store, run.runId, 0, 10)).toEqual({ kind: 'gone', floor: 2 })
  const prelude = await readPrelude(store, ADA, run.runId)
  expect(prelude?.events.map(({ type }) => type)).toEqual([
    'RUN_STARTED',
    'MESSAGES_SNAPSHOT',
    'RUN_FINISHED',
  ])
  expect(await violations(store)).toEqual([])
})
