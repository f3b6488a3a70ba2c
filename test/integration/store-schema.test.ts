// Goal: a process knows a schema that is not its own. Method: the list of what was applied, changed by hand.
import { listRunners, listRuns, openStore, schemaStatus } from '@holdfast/store'
import { expect, test } from 'vitest'
import { ADA, accept, recordAgents } from '../support/by-hand.ts'
import { createDatabase } from '../support/database.ts'
import { connect } from '../support/sql.ts'

test('a schema that lacks any migration of ours is behind, and one with more of them is ahead', async () => {
  await using database = await createDatabase()
  const { url: databaseUrl } = database
  await using store = openStore({ databaseUrl, applicationName: 'test', poolMax: 1 })
  await using sql = await connect(databaseUrl)
  expect(await schemaStatus(store)).toBe('current')
  await sql(
    `INSERT INTO holdfast.schema_migrations (number, name, checksum) VALUES (9999, 'later', '')`,
  )
  expect(await schemaStatus(store)).toBe('ahead')
  await sql('DELETE FROM holdfast.schema_migrations WHERE number = 9999')
  await sql('DELETE FROM holdfast.schema_migrations WHERE number = 2')
  expect(await schemaStatus(store)).toBe('behind')
  await sql('DROP TABLE holdfast.schema_migrations')
  expect(await schemaStatus(store)).toBe('missing')
})

test('a process that has asked before a migration added columns goes on asking', async () => {
  await using database = await createDatabase()
  const { url: databaseUrl } = database
  await using store = openStore({ databaseUrl, applicationName: 'test', poolMax: 1 })
  await using sql = await connect(databaseUrl)
  await recordAgents(store)
  const { runId } = await accept(store)
  const reads = async () => [await listRuns(store, ADA, { limit: 1 }), await listRunners(store)]
  const before = await reads()
  for (const table of ['runs', 'runners', 'conversations']) {
    await sql(`ALTER TABLE holdfast.${table} ADD COLUMN later integer`)
  }
  expect(await reads()).toEqual(before)
  expect(before[0]).toMatchObject({ runs: [{ runId }] })
})
