import { openArtifactStore } from '@holdfast/artifacts'
import { openStore } from '@holdfast/store'
import { expect, test } from 'vitest'
import { housekeeping } from './housekeeping.ts'

const CHORES = 7

test('what one chore cannot do keeps no other from its own, in the same round', async () => {
  // Nobody listens there, so that each of them fails.
  const databaseUrl = 'postgres://nobody@127.0.0.1:1/none'
  await using store = openStore({ databaseUrl, applicationName: 'test', poolMax: 1 })
  const errors: Error[] = []
  const all = Promise.withResolvers<void>()
  const keeping = housekeeping({
    store,
    artifactStore: openArtifactStore({ kind: 'folder', folder: '.holdfast/artifacts' }),
    silentMs: 1000,
    retentionDays: 1,
    onError(error) {
      if (errors.push(error) === CHORES) all.resolve()
    },
  })
  await keeping.start()
  await all.promise
  await keeping.stop()
  expect(errors).toHaveLength(CHORES)
})
