import { type ArtifactStore, runFolder } from '@holdfast/artifacts'
import { asError, type Loop, loop } from '@holdfast/std'
import {
  dropPartition,
  ensurePartitions,
  pruneDelivered,
  pruneStaleWrites,
  purgeDeleted,
  removeRunner,
  type Store,
  syncClock,
} from '@holdfast/store'
import type { ActiveRuns } from './active-runs.ts'

const EVERY_MS = 10_000
const PARTITION_DAYS = 7
const ROUNDS_OF_SELDOM = 6
const STALE_WRITES_KEPT_MS = 30 * 24 * 3_600_000
/** How long operators can see to whom a notification was delivered. */
const DELIVERED_KEPT_MS = 30 * 24 * 3_600_000

/** What has to be done now and then, by every runner: room for the log, what was deleted, runners that are gone. */
export function housekeeping(options: {
  store: Store
  artifactStore: ArtifactStore
  silentMs: number
  /** Days that the log of ended runs is kept; `null`: for ever. */
  retentionDays: number | null
  onError: (error: Error) => void
}): Loop {
  const { store, artifactStore, retentionDays } = options
  let rounds = 0

  async function purge(signal: AbortSignal) {
    const remove = (run: { tenantId: string; runId: string }) =>
      artifactStore.remove(runFolder(run), signal)
    for (const error of await purgeDeleted(store, 20, remove, signal)) options.onError(error)
  }

  /** Each by itself: what one of them cannot do must not keep the next from its own. */
  const always = [
    purge,
    () => pruneStaleWrites(store, STALE_WRITES_KEPT_MS, 1000),
    () => pruneDelivered(store, DELIVERED_KEPT_MS, 5000),
    () => removeRunner(store, { silentMs: options.silentMs }),
  ]
  const seldom = [
    () => syncClock(store),
    () => ensurePartitions(store, PARTITION_DAYS),
    ...(retentionDays === null ? [] : [() => dropPartition(store, retentionDays)]),
  ]
  return loop({
    name: 'housekeeping',
    everyMs: EVERY_MS,
    onError: options.onError,
    async round(signal) {
      const isLong = rounds % ROUNDS_OF_SELDOM === 0
      rounds += 1
      for (const chore of isLong ? [...seldom, ...always] : always) {
        if (signal.aborted) return
        await chore(signal).catch((error: unknown) => options.onError(asError(error)))
      }
    },
  })
}

const SAVE_EVERY_MS = 3000

/** Saves the folds of the running answers, one after the other, so that joining them stays cheap. */
export function foldSaver(options: { active: ActiveRuns; onError: (error: Error) => void }): Loop {
  return loop({
    name: 'fold saver',
    everyMs: SAVE_EVERY_MS,
    onError: options.onError,
    async round(signal) {
      for (const attempt of options.active.all()) {
        if (signal.aborted) return
        await attempt.save()
      }
    },
  })
}
