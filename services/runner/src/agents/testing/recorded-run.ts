import { getEventListeners } from 'node:events'
import type { AgUiEvent } from '@holdfast/protocol'
import { pino } from 'pino'
import { expect } from 'vitest'
import type { AgentRun } from '../agent.ts'

export type RecordedRun = AgentRun & {
  readonly events: AgUiEvent[]
  readonly abort: AbortController
  /** Resolves when at least this many events were emitted. */
  emitted(count: number): Promise<void>
  /** Nothing of the attempt may be left on the run's signal. */
  expectNoListeners(): void
}

const log = pino({ level: 'silent' })

/** A run whose log is a list. */
export function recordedRun(given: Partial<AgentRun> = {}): RecordedRun {
  const abort = new AbortController()
  const events: AgUiEvent[] = []
  const waiting: { count: number; resolve: () => void }[] = []
  return {
    runId: 'run',
    conversationId: 'conversation',
    tenantId: 'tenant',
    userId: 'user',
    epoch: 1,
    reason: 'first',
    messages: [{ id: 'u1', role: 'user', content: 'hello' }],
    state: undefined,
    tools: [],
    context: [],
    forwardedProps: {},
    resume: [],
    openCalls: [],
    usedIds: new Set(),
    history: [{ id: 'u1', role: 'user', content: 'hello' }],
    signal: abort.signal,
    log,
    assertHeld() {},
    step: async (key, _options, fn) =>
      await fn({ idempotencyKey: `run:${key}`, signal: abort.signal }),
    checkpoint: async () => undefined,
    saved: null,
    span: async (_key, _options, fn) => await fn(),
    artifact: async () => undefined,
    async emit(more) {
      abort.signal.throwIfAborted()
      events.push(...more)
      for (const { count, resolve } of waiting) if (events.length >= count) resolve()
    },
    ...given,
    events,
    abort,
    async emitted(count) {
      if (events.length >= count) return
      const { promise, resolve } = Promise.withResolvers<void>()
      waiting.push({ count, resolve })
      await promise
    },
    expectNoListeners: () => expect(getEventListeners(abort.signal, 'abort')).toEqual([]),
  }
}
