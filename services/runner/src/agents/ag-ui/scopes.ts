import { type AgUiEvent, EventType } from '@holdfast/protocol'
import type { RunIds } from '../run-ids.ts'
import type { StreamedKind } from './streamed.ts'

type EventOf<T extends EventType> = Extract<AgUiEvent, { type: T }>
type Tagged = { subagentRunId?: string }
type Step = { name: string; owner: string | undefined }

/** Steps, reasoning spans and subagents: what stands around the messages. */
export type Scopes = {
  /** The event's owner as our log names it; spread into the event. */
  owner(event: AgUiEvent | Tagged): Tagged
  /** A reasoning message belongs to whoever owns the span of the same id. */
  reasoningOwner(id: string, event: Tagged): Tagged
  /** `undefined`: the end of something that is not open. */
  step(event: EventOf<EventType.STEP_STARTED | EventType.STEP_FINISHED>): AgUiEvent[] | undefined
  reasoning(
    event: EventOf<EventType.REASONING_START | EventType.REASONING_END>,
    messages: StreamedKind,
  ): AgUiEvent[] | undefined
  startSubagent(event: EventOf<EventType.SUBAGENT_STARTED>): AgUiEvent[]
  endSubagent(
    event: EventOf<EventType.SUBAGENT_FINISHED | EventType.SUBAGENT_ERROR>,
  ): AgUiEvent[] | undefined
  endAll(): AgUiEvent[]
}

export function createScopes(ids: RunIds): Scopes {
  const subagents = createSubagents(ids)
  const steps: Step[] = []
  const spans = new Map<string, string>()
  const spanOwners = new Map<string, Tagged>()
  const spanIds = new Set<string>()
  const owner = (event: AgUiEvent | Tagged): Tagged => {
    const given = 'subagentRunId' in event ? event.subagentRunId : undefined
    return given === undefined ? {} : { subagentRunId: subagents.idOf(given) }
  }

  function step(event: EventOf<EventType.STEP_STARTED | EventType.STEP_FINISHED>) {
    const own = owner(event).subagentRunId
    const named = steps.filter((one) => one.name === event.stepName)
    const same = named.find((one) => one.owner === own)
    if (event.type === EventType.STEP_STARTED) {
      const ending = same ? [finishStep(steps, same)] : []
      steps.push({ name: event.stepName, owner: own })
      return [...ending, { ...event, ...owner(event) }]
    }
    // Agents that tag a step's end with whoever is active now mean the only step of that name.
    const ended = same ?? (named.length === 1 ? named[0] : undefined)
    if (!ended) return undefined
    const { subagentRunId: _, ...rest } = event
    return [{ ...rest, ...finishStep(steps, ended) }]
  }

  function reasoning(
    event: EventOf<EventType.REASONING_START | EventType.REASONING_END>,
    messages: StreamedKind,
  ) {
    const open = spans.get(event.messageId)
    const ending = open === undefined ? [] : [spanEnd(open)]
    spans.delete(event.messageId)
    if (event.type === EventType.REASONING_END) {
      if (open === undefined) return undefined
      const { subagentRunId: _, ...rest } = event
      return [{ ...rest, messageId: open }]
    }
    const shared = messages.idOf(event.messageId)
    const phase = messages.find(event.messageId)?.phase
    const id = phase === 'closed' || spanIds.has(shared) ? ids.message('') : shared
    // A span around a message that began before it has that message's owner.
    const { subagentRunId: _, ...rest } = event
    const tag = phase === 'open' ? {} : owner(event)
    spanIds.add(id)
    spans.set(event.messageId, id)
    if (phase !== 'open') spanOwners.set(id, tag)
    return [...ending, { ...rest, ...tag, messageId: id }]
  }

  return {
    owner,
    reasoningOwner: (id, event) => spanOwners.get(id) ?? owner(event),
    step,
    reasoning,
    startSubagent: (event) => subagents.start(event),
    endSubagent: (event) => subagents.end(event),
    endAll: () => [
      ...[...spans.values()].map(spanEnd),
      ...steps.splice(0).map((one) => stepEnd(one)),
      ...subagents.endAll(),
    ],
  }
}

function createSubagents(ids: RunIds) {
  const known = new Map<string, { id: string; phase: 'named' | 'open' | 'closed' }>()
  const started = new Set<string>()
  const idOf = (upstreamId: string): string => {
    const found = known.get(upstreamId)
    if (found) return found.id
    const id = ids.subagent(upstreamId)
    known.set(upstreamId, { id, phase: 'named' })
    return id
  }
  return {
    idOf,
    start(event: EventOf<EventType.SUBAGENT_STARTED>): AgUiEvent[] {
      const before = known.get(event.subagentRunId)
      if (before?.phase === 'open') return []
      if (before?.phase === 'closed') known.delete(event.subagentRunId)
      const id = idOf(event.subagentRunId)
      known.set(event.subagentRunId, { id, phase: 'open' })
      const { parentSubagentRunId, ...rest } = event
      const parent = parentSubagentRunId === undefined ? undefined : idOf(parentSubagentRunId)
      const isStarted = parent !== undefined && started.has(parent)
      started.add(id)
      return [{ ...rest, subagentRunId: id, ...(isStarted && { parentSubagentRunId: parent }) }]
    },
    end(
      event: EventOf<EventType.SUBAGENT_FINISHED | EventType.SUBAGENT_ERROR>,
    ): AgUiEvent[] | undefined {
      const open = known.get(event.subagentRunId)
      if (open?.phase !== 'open') return undefined
      open.phase = 'closed'
      return [{ ...event, subagentRunId: open.id }]
    },
    endAll(): AgUiEvent[] {
      const open = [...known.values()].filter((one) => one.phase === 'open')
      for (const one of open) one.phase = 'closed'
      return open
        .map((one): AgUiEvent => ({ type: EventType.SUBAGENT_FINISHED, subagentRunId: one.id }))
        .reverse()
    },
  }
}

function finishStep(steps: Step[], step: Step): AgUiEvent {
  steps.splice(steps.indexOf(step), 1)
  return stepEnd(step)
}

function stepEnd({ name, owner }: Step): AgUiEvent {
  return {
    type: EventType.STEP_FINISHED,
    stepName: name,
    ...(owner !== undefined && { subagentRunId: owner }),
  }
}

function spanEnd(messageId: string): AgUiEvent {
  return { type: EventType.REASONING_END, messageId }
}
