import type { Interrupt, Message, ResumeEntry, ToolMessage } from './event.ts'
import type { UnansweredCall } from './fold.ts'

/** What the last turn of a conversation left to be answered before its agent can go on. */
export type Pending = {
  readonly interrupts: readonly Interrupt[]
  /** Tool calls without a result, in order. */
  readonly calls: readonly UnansweredCall[]
}

/** A tool call's result as a front end brings it. */
export type ToolResult = {
  readonly toolCallId: string
  readonly content: ToolMessage['content']
  /** The id that the message is to have; left out, it gets one. */
  readonly messageId?: string | undefined
  readonly error?: string | undefined
}

export type Given = {
  readonly resume: readonly ResumeEntry[]
  readonly toolResults: readonly ToolResult[]
  /** The user says something new as well: calls without an answer are over. */
  readonly says: boolean
  /** Results of calls that are not pending are left out instead of refused: a stock client sends its whole history. */
  readonly ignoreSettled?: boolean | undefined
}

export type Answers = {
  /** Every pending interrupt with its answer; one that nobody answered is cancelled. */
  readonly resume: readonly ResumeEntry[]
  /** Results that enter the history with the new turn. */
  readonly results: readonly Message[]
  /** Calls that the agent itself answers as it goes on. */
  readonly openCalls: readonly UnansweredCall[]
}

export type AnswersOutcome =
  | { readonly kind: 'answers'; readonly answers: Answers }
  /** These are not pending: answered before, expired, or never asked. */
  | { readonly kind: 'closed'; readonly ids: readonly string[] }
  /** These would be left without an answer, or are answered twice. */
  | { readonly kind: 'incomplete'; readonly missing: readonly string[] }

/** What a call gets whose answer will never come. */
const INTERRUPTED = 'interrupted'

/**
 * Decides what a new turn means for what is pending. A turn that answers must answer all that has not expired; a plain
 * one cancels everything. Pure: the database's clock comes as `atMs`, milliseconds since 1970.
 */
export function answersTo(
  pending: Pending,
  given: Given,
  at: { atMs: number; mintId: () => string },
): AnswersOutcome {
  const calls = new Map(pending.calls.map((call) => [call.toolCallId, call]))
  const toolResults = given.ignoreSettled
    ? given.toolResults.filter((result) => calls.has(result.toolCallId))
    : given.toolResults
  const live = pending.interrupts.filter((interrupt) => !hasExpired(interrupt, at.atMs))
  if (!given.says || given.resume.length + toolResults.length > 0) {
    const refusal = refusalOf(pending, { ...given, toolResults }, live, calls)
    if (refusal) return refusal
  }
  const entries = new Map(given.resume.map((entry) => [entry.interruptId, entry]))
  const resume = pending.interrupts.map(
    (interrupt): ResumeEntry =>
      entries.get(interrupt.id) ?? { interruptId: interrupt.id, status: 'cancelled' },
  )
  const left = leftToTheAgent(pending, resume)
  const byCall = new Map(toolResults.map((result) => [result.toolCallId, result]))
  const openCalls = pending.calls.filter(
    ({ toolCallId }) => !byCall.has(toolCallId) && left(toolCallId),
  )
  const results = pending.calls
    .filter((call) => !openCalls.includes(call))
    .map((call) => messageOf(call, byCall.get(call.toolCallId), at.mintId))
  return { kind: 'answers', answers: { resume, results, openCalls } }
}

/** An interrupt whose time is over can only be cancelled; one without a readable time has no end. */
export function hasExpired(interrupt: Interrupt, atMs: number): boolean {
  const expiresAtMs = Date.parse(interrupt.expiresAt ?? '')
  return Number.isNaN(expiresAtMs) ? false : expiresAtMs <= atMs
}

function refusalOf(
  pending: Pending,
  given: Given,
  live: readonly Interrupt[],
  calls: ReadonlyMap<string, UnansweredCall>,
): AnswersOutcome | null {
  const known = new Set(pending.interrupts.map(({ id }) => id))
  const alive = new Set(live.map(({ id }) => id))
  const closed = [
    ...given.resume
      .filter(
        ({ interruptId, status }) => !(status === 'cancelled' ? known : alive).has(interruptId),
      )
      .map(({ interruptId }) => interruptId),
    ...given.toolResults.map(({ toolCallId }) => toolCallId).filter((id) => !calls.has(id)),
  ]
  if (closed.length > 0) return { kind: 'closed', ids: closed }
  if (given.resume.length + given.toolResults.length === 0) return { kind: 'closed', ids: [] }
  const ids = [
    ...given.resume.map(({ interruptId }) => interruptId),
    ...given.toolResults.map(({ toolCallId }) => toolCallId),
  ]
  const twice = ids.filter((id, place) => ids.indexOf(id) !== place)
  const answered = new Set(ids)
  const expected = live.map(({ id }) => id)
  // Beside an interrupt the other calls are its agent's own; without one they wait for the front end.
  if (pending.interrupts.length === 0 && !given.says) expected.push(...calls.keys())
  const missing = [...twice, ...expected.filter((id) => !answered.has(id))]
  return missing.length > 0 ? { kind: 'incomplete', missing } : null
}

/** Only where something was resolved does the agent go on with its own calls; what was cancelled is over. */
function leftToTheAgent(
  pending: Pending,
  resume: readonly ResumeEntry[],
): (toolCallId: string) => boolean {
  const resolved = new Set(
    resume.filter(({ status }) => status === 'resolved').map(({ interruptId }) => interruptId),
  )
  const cancelledCalls = new Set(
    pending.interrupts.filter(({ id }) => !resolved.has(id)).map(({ toolCallId }) => toolCallId),
  )
  return (toolCallId) => resolved.size > 0 && !cancelledCalls.has(toolCallId)
}

function messageOf(
  call: UnansweredCall,
  result: ToolResult | undefined,
  mintId: () => string,
): Message {
  return {
    id: result?.messageId ?? mintId(),
    role: 'tool',
    toolCallId: call.toolCallId,
    content: result?.content ?? INTERRUPTED,
    ...(result?.error === undefined ? {} : { error: result.error }),
    ...(call.subagentRunId === undefined ? {} : { subagentRunId: call.subagentRunId }),
  }
}
