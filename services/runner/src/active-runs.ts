import { within } from '@holdfast/std'
import type { AbortCause } from './abort.ts'
import type { Attempt } from './attempt.ts'

/** The runs that this process executes now. Nothing here has to survive it. */
export type ActiveRuns = {
  readonly size: number
  /** Follows an execution to its end; it never rejects. */
  add(runId: string, execute: (register: (attempt: Attempt) => void) => Promise<void>): void
  get(runId: string): Attempt | undefined
  all(): Attempt[]
  /** Those that begin later included. */
  abortAll(cause: AbortCause): void
  /** Resolves when nothing is executed any more, at the latest after `ms`; says whether that is so. */
  empty(ms: number): Promise<boolean>
}

export function activeRuns(on: {
  changed: (size: number) => void
  failed: (error: unknown, runId: string) => void
}): ActiveRuns {
  const executions = new Map<string, Promise<void>>()
  const attempts = new Map<string, Attempt>()
  const idle = new Set<() => void>()
  let stopped: AbortCause | null = null

  /** An attempt that was still reading its input when all were told to stop is told now. */
  function register(runId: string, attempt: Attempt) {
    attempts.set(runId, attempt)
    if (stopped) attempt.abort(stopped)
  }

  return {
    get size() {
      return executions.size
    },
    add(runId, execute) {
      const execution = execute((attempt) => register(runId, attempt))
        .catch((error: unknown) => on.failed(error, runId))
        .finally(() => {
          // The same run may have been claimed again meanwhile; then it is that execution's entry.
          if (executions.get(runId) === execution) {
            executions.delete(runId)
            attempts.delete(runId)
          }
          on.changed(executions.size)
          if (executions.size === 0) {
            for (const resolve of idle) resolve()
            idle.clear()
          }
        })
      executions.set(runId, execution)
      on.changed(executions.size)
    },
    get: (runId) => attempts.get(runId),
    all: () => [...attempts.values()],
    abortAll(cause) {
      stopped = cause
      for (const attempt of attempts.values()) attempt.abort(cause)
    },
    async empty(ms) {
      if (executions.size === 0) return true
      const emptied = Promise.withResolvers<boolean>()
      idle.add(() => emptied.resolve(true))
      return (await within(ms, emptied.promise)) ?? false
    },
  }
}
