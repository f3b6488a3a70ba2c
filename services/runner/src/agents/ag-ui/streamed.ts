import type { AgUiEvent } from '@holdfast/protocol'
import { joinSurrogates, sanitize } from '@holdfast/protocol'

/** One text, tool call or reasoning message of the upstream, under the id it has in our log. */
export type Streamed = {
  readonly id: string
  /** `named`: another event referred to it, but it did not start. */
  phase: 'named' | 'open' | 'closed'
  /** Something was said in it already. */
  said: boolean
}

export type StreamedKind = {
  find(upstreamId: string): Streamed | undefined
  /** The id that a reference to it (a parent, a snapshot) has in our log. */
  idOf(upstreamId: string): string
  /** `start` is called with the id unless the START only repeats one that said nothing yet. */
  start(
    upstreamId: string,
    start: (id: string) => AgUiEvent,
    allocate?: (upstreamId: string) => string,
  ): AgUiEvent[]
  content(streamed: Streamed, delta: string, content: (delta: string) => AgUiEvent): AgUiEvent[]
  end(streamed: Streamed, extra?: object): AgUiEvent[]
  /** What a snapshot brought: it is there, complete. */
  adopt(upstreamId: string): Streamed
  /** Held halves of surrogate pairs, as content, for all that is open. */
  flush(): AgUiEvent[]
  endAll(): AgUiEvent[]
  openIds(): ReadonlySet<string>
}

/**
 * The common life of everything that is streamed as START, CONTENT, END. A START after the END of
 * the same id, or while that id is open and has content, is something new and gets a new id.
 */
export function createStreamedKind(kind: {
  allocate(upstreamId: string): string
  content(id: string, delta: string): AgUiEvent
  end(id: string): AgUiEvent
}): StreamedKind {
  const byUpstreamId = new Map<string, Streamed>()
  const open = new Set<Streamed>()
  const joined = joinSurrogates()

  function add(upstreamId: string, phase: Streamed['phase'], allocate = kind.allocate): Streamed {
    const streamed: Streamed = { id: allocate(upstreamId), phase, said: false }
    byUpstreamId.set(upstreamId, streamed)
    return streamed
  }
  function leftover(streamed: Streamed): AgUiEvent[] {
    const rest = joined.end(streamed.id)
    return rest === '' ? [] : [kind.content(streamed.id, rest)]
  }
  function end(streamed: Streamed, extra: object = {}): AgUiEvent[] {
    if (streamed.phase !== 'open') return []
    streamed.phase = 'closed'
    open.delete(streamed)
    return [...leftover(streamed), { ...kind.end(streamed.id), ...extra }]
  }

  return {
    find: (upstreamId) => byUpstreamId.get(upstreamId),
    idOf: (upstreamId) => (byUpstreamId.get(upstreamId) ?? add(upstreamId, 'named')).id,
    start(upstreamId, start, allocate) {
      const known = byUpstreamId.get(upstreamId)
      if (known?.phase === 'open' && !known.said) return []
      const ending = known ? end(known) : []
      const streamed = known?.phase === 'named' ? known : add(upstreamId, 'open', allocate)
      streamed.phase = 'open'
      open.add(streamed)
      return [...ending, start(streamed.id)]
    },
    content(streamed, delta, content) {
      const ready = sanitize(joined.push(streamed.id, delta))
      if (delta !== '') streamed.said = true
      return ready === '' ? [] : [content(ready)]
    },
    end,
    adopt(upstreamId) {
      const known = byUpstreamId.get(upstreamId) ?? add(upstreamId, 'named')
      if (known.phase !== 'open') known.phase = 'closed'
      return known
    },
    flush: () => [...open].flatMap(leftover),
    endAll: () => [...open].flatMap((streamed) => end(streamed)),
    openIds: () => new Set([...open].map((streamed) => streamed.id)),
  }
}
