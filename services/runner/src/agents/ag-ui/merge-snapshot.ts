import { isDeepStrictEqual } from 'node:util'
import type { Message } from '@holdfast/protocol'
import type { RunIds } from '../run-ids.ts'
import type { Spoken } from './spoken.ts'

/**
 * What an upstream's MESSAGES_SNAPSHOT makes of this run's own messages, or `undefined` if it
 * changes nothing. It may add messages of this run or replace them; what it says about the
 * history, what it leaves out, and what contradicts a message that is still open does not count.
 */
export function mergeUpstreamSnapshot(
  snapshot: readonly Message[],
  run: {
    history: readonly Message[]
    own: readonly Message[]
    spoken: Spoken
    ids: RunIds
  },
): Message[] | undefined {
  const merged = [...run.own]
  const open = openMessages(run.own, run.spoken)
  for (const message of saidInThisRun(snapshot, run)) {
    const id = ownIdOf(message, run.own, run.spoken)
    const index = id === undefined ? -1 : merged.findIndex((own) => own.id === id)
    // Clients keep the order they have and put new messages at the end, so that is done here.
    if (id === undefined || index === -1) {
      merged.push(adopted(message, takeId(message, run), run.spoken))
    } else if (!open.has(id)) {
      merged[index] = adopted(message, id, run.spoken)
    }
  }
  return isDeepStrictEqual(merged, run.own) ? undefined : merged
}

/**
 * The part of a snapshot that can be this run's: behind this turn's user message where the
 * snapshot has it, and nothing that the history has. Instructions and user messages are never
 * the agent's to add.
 */
function saidInThisRun(
  snapshot: readonly Message[],
  run: { history: readonly Message[]; spoken: Spoken; own: readonly Message[] },
): Message[] {
  const turn = run.history.findLastIndex((message) => message.role === 'user')
  const question = run.history[turn]
  const start = snapshot.findLastIndex((message) => isSame(message, question))
  const past = new Set(run.history.map((message) => message.id))
  return snapshot.slice(start + 1).filter((message) => {
    if (message.role === 'user' || message.role === 'system' || message.role === 'developer') {
      return false
    }
    if (start !== -1) return !past.has(message.id) || isOwn(message, run.spoken)
    return !past.has(message.id) && !run.history.some((old) => hasSameContent(old, message))
  })
}

function isSame(message: Message, question: Message | undefined): boolean {
  if (question === undefined || message.role !== 'user') return false
  return message.id === question.id || hasSameContent(message, question)
}

function isOwn(message: Message, spoken: Spoken): boolean {
  return knownId(message, spoken) !== undefined
}

/** By its id, or, where an upstream gives new ids in its snapshots, by what it says. */
function ownIdOf(message: Message, own: readonly Message[], spoken: Spoken): string | undefined {
  const known = knownId(message, spoken)
  if (known !== undefined) return known
  return own.find((one) => hasSameContent(one, translated(message, one.id, spoken)))?.id
}

function knownId(message: Message, spoken: Spoken): string | undefined {
  if (message.role === 'tool') return spoken.results.get(message.id)
  if (message.role === 'activity') return spoken.activities.get(message.id)
  if (message.role === 'reasoning') return spoken.reasonings.find(message.id)?.id
  // A call without a parent made a message that has the call's id.
  return spoken.texts.find(message.id)?.id ?? spoken.calls.find(message.id)?.id
}

function takeId(message: Message, run: { spoken: Spoken; ids: RunIds }): string {
  const { spoken, ids } = run
  if (message.role === 'reasoning') return spoken.reasonings.adopt(message.id).id
  if (message.role === 'assistant') return spoken.texts.adopt(message.id).id
  const id = ids.message(message.id)
  if (message.role === 'tool') spoken.results.set(message.id, id)
  if (message.role === 'activity') spoken.activities.set(message.id, id)
  return id
}

/** The message under our ids; its calls and results count as said from now on. */
function adopted(message: Message, id: string, spoken: Spoken): Message {
  if (message.role === 'assistant') {
    for (const call of message.toolCalls ?? []) spoken.calls.adopt(call.id)
  }
  const ours = translated(message, id, spoken)
  if (ours.role === 'tool') spoken.answered.add(ours.toolCallId)
  return ours
}

function translated(message: Message, id: string, spoken: Spoken): Message {
  const callId = (upstreamId: string) => spoken.calls.find(upstreamId)?.id ?? upstreamId
  const owned = { ...message, ...spoken.scopes.owner(message), id }
  if (owned.role === 'tool') return { ...owned, toolCallId: callId(owned.toolCallId) }
  if (owned.role !== 'assistant' || !owned.toolCalls) return owned
  const toolCalls = owned.toolCalls.map((call) => ({ ...call, id: callId(call.id) }))
  return { ...owned, toolCalls }
}

function hasSameContent(one: Message, other: Message): boolean {
  if (one.role !== other.role) return false
  const callsOf = (message: Message) =>
    message.role === 'assistant' ? (message.toolCalls ?? []).map((call) => call.id) : []
  return (
    isDeepStrictEqual(one.content ?? '', other.content ?? '') &&
    isDeepStrictEqual(callsOf(one), callsOf(other)) &&
    (one.role !== 'tool' || other.role !== 'tool' || one.toolCallId === other.toolCallId)
  )
}

/** Our ids of messages that are still being said, or hold a call that is. */
function openMessages(own: readonly Message[], spoken: Spoken): Set<string> {
  const openCalls = spoken.calls.openIds()
  const open = new Set([...spoken.texts.openIds(), ...spoken.reasonings.openIds()])
  for (const message of own) {
    if (message.role !== 'assistant') continue
    if (message.toolCalls?.some((call) => openCalls.has(call.id))) open.add(message.id)
  }
  return open
}
