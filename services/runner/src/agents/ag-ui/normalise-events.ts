import {
  type AgUiEvent,
  EventType,
  emptyFold,
  foldEvents,
  type Message,
  sanitize,
} from '@holdfast/protocol'
import type { AgentResult, AgentRun } from '../agent.ts'
import { createRunIds } from '../run-ids.ts'
import { createChunkExpander } from './expand-chunks.ts'
import { createThinkingRewriter } from './legacy-thinking.ts'
import { mergeUpstreamSnapshot } from './merge-snapshot.ts'
import { parseEvent } from './parse-event.ts'
import { repaired } from './repair-sequence.ts'
import { createSpoken } from './spoken.ts'

export type UpstreamEnding =
  | { kind: 'finished'; result: AgentResult }
  | { kind: 'failed'; message: string; code?: string; usage?: AgentResult['usage'] }

export type Normalised = {
  /** For the log, in order. */
  events: AgUiEvent[]
  /** The upstream's model got on: this was more than a keep-alive. */
  progress: boolean
  /** The upstream's own end; whatever it sends after it does not count. */
  ending?: UpstreamEnding
}

export type EventNormaliser = {
  /** @throws AgentFailure upstream_error if the value is no valid event or cannot be placed */
  push(value: unknown): Normalised
  /** What is held back of the text so far, for when the upstream ends without an ending. */
  flush(): AgUiEvent[]
}

/** How many events wait unfolded: a snapshot of messages, which needs the fold, is rare. */
const UNFOLDED_MAX = 4096

/**
 * Turns one upstream's events into events that our log can hold: valid, complete, in AG-UI's
 * order, with ids that this conversation has not seen, about this run's messages only.
 */
export function createEventNormaliser(
  run: Pick<AgentRun, 'runId' | 'epoch' | 'usedIds' | 'history' | 'messages' | 'log'>,
): EventNormaliser {
  const ids = createRunIds(run)
  const spoken = createSpoken(ids)
  const rewritten = createThinkingRewriter(`${run.runId}.${run.epoch}.thinking`)
  const chunks = createChunkExpander(ids.mint)
  let fold = emptyFold()
  let unfolded: AgUiEvent[] = []
  let ended = false

  function note(events: AgUiEvent[]): AgUiEvent[] {
    unfolded.push(...events)
    if (unfolded.length > UNFOLDED_MAX) ownMessages()
    return events
  }
  function ownMessages() {
    fold = foldEvents(fold, unfolded)
    unfolded = []
    return fold.messages
  }
  function snapshot(event: Extract<AgUiEvent, { type: EventType.MESSAGES_SNAPSHOT }>) {
    const merged = mergeUpstreamSnapshot(event.messages, {
      history: asSent(run),
      own: ownMessages(),
      spoken,
      ids,
    })
    if (!merged) return []
    fold = { ...fold, messages: merged }
    return [{ ...event, messages: [...run.history, ...merged] }]
  }
  function placed(event: AgUiEvent): AgUiEvent[] {
    if (event.type === EventType.MESSAGES_SNAPSHOT) return snapshot(event)
    return note(repaired(event, spoken, ids, run.log))
  }
  const endAll = () => [
    ...spoken.texts.endAll(),
    ...spoken.calls.endAll(),
    ...spoken.reasonings.endAll(),
    ...spoken.scopes.endAll(),
  ]

  return {
    push(value) {
      if (ended) return { events: [], progress: false }
      const parsed = parseEvent(rewritten(value))
      if (parsed.kind === 'ignored') {
        if (!parsed.known) run.log.debug({ type: parsed.type }, 'upstream event of unknown type')
        return { events: [], progress: parsed.known }
      }
      const expanded = chunks.expand(cleaned(parsed.event))
      const events: AgUiEvent[] = []
      for (const event of expanded) {
        if (event.type === EventType.RUN_FINISHED) {
          ended = true
          events.push(...endAll())
          return { events, progress: true, ending: finished(event, spoken.calls) }
        }
        if (event.type === EventType.RUN_ERROR) {
          ended = true
          events.push(
            ...spoken.texts.flush(),
            ...spoken.calls.flush(),
            ...spoken.reasonings.flush(),
          )
          return { events, progress: true, ending: failed(event) }
        }
        events.push(...placed(event))
      }
      return { events, progress: !saysNothing(parsed.event) }
    },
    flush: () => [...spoken.texts.flush(), ...spoken.calls.flush(), ...spoken.reasonings.flush()],
  }
}

/** The history as the upstream knows it: with bytes where ours only refers to them, so that it is found again. */
function asSent({ history, messages }: Pick<AgentRun, 'history' | 'messages'>): Message[] {
  const sent = new Map(messages.map((message) => [message.id, message]))
  return history.map((message) =>
    message.role === 'user' || message.role === 'tool'
      ? (sent.get(message.id) ?? message)
      : message,
  )
}

/** Deltas stay as they are until the halves of surrogate pairs are together again. */
function cleaned(event: AgUiEvent): AgUiEvent {
  if (!('delta' in event) || typeof event.delta !== 'string') return sanitize(event)
  const { delta, ...rest } = event
  return { ...sanitize(rest), delta } as AgUiEvent
}

/** An empty delta keeps a connection open, not a model going. */
function saysNothing(event: AgUiEvent): boolean {
  return 'delta' in event && event.delta === ''
}

function finished(
  event: Extract<AgUiEvent, { type: EventType.RUN_FINISHED }>,
  calls: { find(upstreamId: string): { id: string } | undefined },
): UpstreamEnding {
  const { outcome, result, usage } = event
  const rest = { ...(result !== undefined && { result }), ...(usage !== undefined && { usage }) }
  if (outcome?.type === 'cancelled') {
    return { kind: 'finished', result: { outcome: 'cancelled', ...rest } }
  }
  if (outcome?.type !== 'interrupt') {
    return { kind: 'finished', result: { outcome: 'success', ...rest } }
  }
  const interrupts = outcome.interrupts.map((interrupt) => {
    const call = interrupt.toolCallId === undefined ? undefined : calls.find(interrupt.toolCallId)
    return call ? { ...interrupt, toolCallId: call.id } : interrupt
  })
  return { kind: 'finished', result: { outcome: 'interrupt', interrupts, ...rest } }
}

function failed(event: Extract<AgUiEvent, { type: EventType.RUN_ERROR }>): UpstreamEnding {
  return {
    kind: 'failed',
    message: event.message,
    ...(event.code !== undefined && { code: event.code }),
    ...(event.usage !== undefined && { usage: event.usage }),
  }
}
