// Goal: what was deleted is removed, whatever else cannot be. Method: two conversations in the database, and a store of files
// that refuses to remove those of one of them.
import { deleteConversation, openStore, purgeDeleted, violations } from '@holdfast/store'
import { expect, test } from 'vitest'
import { ADA, accept, claimOne, finish, recordAgents } from '../support/by-hand.ts'
import { createDatabase } from '../support/database.ts'
import { connect } from '../support/sql.ts'

const never = new AbortController().signal

test('a conversation that cannot be purged stands in the way of no other; a runner that ends leaves the rest', async () => {
  await using database = await createDatabase()
  await using store = openStore({
    databaseUrl: database.url,
    applicationName: 'test',
    poolMax: 2,
  })
  await using sql = await connect(database.url)
  await recordAgents(store)
  const stuck = await ended()
  const other = await ended()
  for (const { conversationId } of [stuck, other]) {
    await deleteConversation(store, ADA, conversationId, { cancel: false })
  }
  const refusal = new Error('the files cannot be removed')
  const removeFiles = async ({ runId }: { runId: string }) => {
    if (runId === stuck.runId) throw refusal
  }
  const ending = new AbortController()
  const cutFiles = async () => {
    ending.abort()
    throw refusal
  }
  expect(await purgeDeleted(store, 20, cutFiles, ending.signal)).toEqual([])
  expect(await left()).toHaveLength(2)
  expect(await purgeDeleted(store, 20, removeFiles, never)).toEqual([refusal])
  expect(await left()).toEqual([{ id: stuck.conversationId }])
  expect(await purgeDeleted(store, 20, async () => undefined, never)).toEqual([])
  expect(await left()).toEqual([])
  expect(await violations(store)).toEqual([])

  async function ended() {
    const run = await accept(store)
    await finish(store, (await claimOne(store)).lease)
    return run
  }
  async function left() {
    return await sql('SELECT id FROM holdfast.conversations')
  }
})
