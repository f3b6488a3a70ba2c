import { type ArtifactStore, attemptOfPath } from '@holdfast/artifacts'
import { type Loop, loop } from '@holdfast/std'
import { orphansAmong, type Store } from '@holdfast/store'
import type { Logger } from 'pino'
import type { RunnerMetrics } from './metrics.ts'

const EVERY_MS = 15_000
const FILES_A_ROUND = 500
/** A run that is not there may be one of a database that was set back; its files are kept for so long. */
const UNKNOWN_MS = 86_400_000

/**
 * Removes files that belong to nobody: of lost attempts, of uploads that no end named, of runs that are gone. One page
 * of the store a round, from where the last one ended, so that its cost does not grow with what is kept. Every runner
 * does it; removing twice is no error.
 */
export function artifactCollector(options: {
  store: Store
  artifactStore: ArtifactStore
  metrics: Pick<RunnerMetrics, 'artifactsCollected'>
  log: Logger
  onError: (error: Error) => void
}): Loop {
  const { store, artifactStore, log } = options
  let after = ''
  return loop({
    name: 'artifact collector',
    everyMs: EVERY_MS,
    onError: options.onError,
    async round(signal) {
      const files = await artifactStore.list(after, FILES_A_ROUND, signal)
      const found = files.flatMap(({ path, modifiedAtMs }) => {
        const attempt = attemptOfPath(path)
        return attempt ? [{ path, ...attempt, old: Date.now() - modifiedAtMs > UNKNOWN_MS }] : []
      })
      for (const path of await orphansAmong(store, found)) {
        if (signal.aborted) return
        await artifactStore.remove(path, signal)
        options.metrics.artifactsCollected.inc()
        log.info({ path }, 'an artifact that belongs to nobody was removed')
      }
      // One that cannot be removed is met again in the next turn through the store.
      after = files.length < FILES_A_ROUND ? '' : (files.at(-1)?.path ?? '')
    },
  })
}
