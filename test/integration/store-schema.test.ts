// Goal: a process knows a schema that is not its own. Method: the list of what was applied, changed by hand.
import { openStore, schemaStatus } from '@holdfast/store'
import { expect, test } from 'vitest'
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
