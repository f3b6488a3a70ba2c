import { type Loop, loop } from '@holdfast/std'
import { readOwnership, type Store } from '@holdfast/store'
import type { ActiveRuns } from './active-runs.ts'

/** A cancel closes its upstream within a second, also when no hint of it arrives. */
const LOOK_EVERY_MS = 500

/**
 * Looks for the marks of cancels on the runs that are executed here. An attempt that writes, or renews, sees its
 * own; this is for the silent ones, one read by primary keys for all of them.
 */
export function cancelWatch(options: {
  store: Store
  active: ActiveRuns
  onError: (error: Error) => void
}): Loop & {
  /** A hint; `null`: some may have been missed. */
  hint(runIds: readonly string[] | null): void
} {
  const { store, active } = options
  const watch = loop({
    name: 'cancel watch',
    everyMs: LOOK_EVERY_MS,
    onError: options.onError,
    async round() {
      const working = active.all().filter(({ signal }) => !signal.aborted)
      const found = await readOwnership(
        store,
        working.map(({ claimed }) => claimed.lease),
      )
      for (const { runId, epoch } of found.filter((run) => run.held && run.cancelRequested)) {
        const attempt = active.get(runId)
        if (attempt?.claimed.lease.epoch === epoch) attempt.abort('cancel')
      }
    },
  })
  return {
    ...watch,
    hint(runIds) {
      if (runIds?.every((runId) => !active.get(runId))) return
      watch.wake()
    },
  }
}
