import type { AgUiEvent } from '@holdfast/protocol'
import { AgentFailure, type AgentRun } from '../agent.ts'

/** The run's log with what was written to it noted: from then on nothing may be tried again. */
export type NotedLog = {
  readonly emitted: boolean
  write(events: readonly AgUiEvent[]): Promise<void>
}

export function notedLog(run: Pick<AgentRun, 'emit'>): NotedLog {
  let emitted = false
  return {
    get emitted() {
      return emitted
    },
    async write(events) {
      if (events.length === 0) return
      emitted = true
      await run.emit(events)
    },
  }
}

/** The same failure, but final. */
export function withoutRetry(error: unknown): unknown {
  if (!(error instanceof AgentFailure) || !error.retryable) return error
  return new AgentFailure(error.code, error.message, { cause: error.cause, usage: error.usage })
}
