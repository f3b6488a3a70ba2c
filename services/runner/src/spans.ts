import { within } from '@holdfast/std'
import { type SpanWrite, writeSpans } from '@holdfast/store'
import type { AgentRun } from './agents/agent.ts'
import type { Attempt } from './attempt.ts'
import { type FencedWriteDeps, writeFenced } from './fenced-write.ts'

export type Spans = {
  readonly span: AgentRun['span']
  /** Waits, but not long, until what is known of them is written. */
  close(): Promise<void>
}

/** More at a time are not written: the timeline is for people. */
const PENDING_MAX = 1000
const CLOSE_MS_MAX = 2000

type Record = { key: string; kind: string; parent: string | null; startedMs: number }
type Ended = { endedMs: number; outcome: 'done' | 'failed' | 'cancelled' }

/** Writes spans behind the agent's back, many in one statement; a database that is away costs spans, never the run. */
export function openSpans(deps: FencedWriteDeps, attempt: Attempt): Spans {
  const pending = new Map<string, Record & Partial<Ended>>()
  const counts = new Map<string, number>()
  let writing: Promise<void> | null = null

  /** A part that comes again has a name of its own. */
  function named(key: string): string {
    const count = (counts.get(key) ?? 0) + 1
    counts.set(key, count)
    return count === 1 ? key : `${key} #${count}`
  }

  function note(record: Record & Partial<Ended>) {
    if (pending.size >= PENDING_MAX && !pending.has(record.key)) return
    pending.set(record.key, record)
    writing ??= write().finally(() => {
      writing = null
    })
  }

  async function write() {
    while (pending.size > 0) {
      const batch = [...pending.values()]
      pending.clear()
      try {
        await writeFenced(deps, attempt, {
          operation: 'span',
          send: () => writeSpans(deps.store, attempt.claimed.lease, batch.map(asWrite)),
        })
      } catch (error) {
        deps.log.warn({ err: error, spans: batch.length }, 'spans were not written')
        return
      }
    }
  }

  return {
    async span(key, { kind = 'span', parent = null }, fn) {
      const record = { key: named(key), kind, parent, startedMs: performance.now() }
      note(record)
      try {
        const value = await fn()
        note({ ...record, endedMs: performance.now(), outcome: 'done' })
        return value
      } catch (error) {
        const outcome = attempt.signal.aborted ? 'cancelled' : 'failed'
        note({ ...record, endedMs: performance.now(), outcome })
        throw error
      }
    },
    async close() {
      if (writing) await within(CLOSE_MS_MAX, writing)
    },
  }
}

function asWrite({ startedMs, endedMs, outcome, ...span }: Record & Partial<Ended>): SpanWrite {
  const nowMs = performance.now()
  return {
    ...span,
    startedAgoMs: nowMs - startedMs,
    endedAgoMs: endedMs === undefined ? null : nowMs - endedMs,
    outcome: outcome ?? null,
  }
}
