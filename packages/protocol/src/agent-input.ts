import { omitOptionalNulls, type RunAgentInput } from '@ag-ui/core'
import { RunAgentInputSchema } from '@ag-ui/core/schemas'
import * as z from 'zod'
import { LIMITS } from './limits.ts'
import { ForeignId, UserContent } from './rest.ts'

/** What is new in a RunAgentInput; its history is the client's memory and not ours. */
export type AgentInput = {
  threadId: string
  /** The caller's run id, which is the client turn. */
  runId: string
  message: UserContent
  messageId: string
  state: unknown
  tools: RunAgentInput['tools']
  context: RunAgentInput['context']
  forwardedProps: Record<string, unknown> | undefined
  /** It answers interrupts or front-end tool calls instead of saying something new. */
  answersPending: boolean
}

export type AgentInputOutcome =
  | { kind: 'input'; input: AgentInput }
  | { kind: 'invalid'; errors: { path: string; message: string }[] }

const Own = z.object({
  threadId: ForeignId,
  runId: z.string().min(1).max(LIMITS.clientTurnIdCharsMax),
  forwardedProps: z.record(z.string(), z.unknown()).optional(),
})

/** Tells AG-UI's body from our own POST /runs body. */
export function isAgentInput(body: unknown): boolean {
  return (
    typeof body === 'object' &&
    body !== null &&
    'threadId' in body &&
    'runId' in body &&
    'messages' in body
  )
}

/**
 * Reads a RunAgentInput leniently: optional fields that are null count as left out, fields that
 * AG-UI does not know are dropped, and of the messages only those from the last user message on
 * are looked at.
 */
export function readAgentInput(body: unknown): AgentInputOutcome {
  const parsed = RunAgentInputSchema.safeParse(omitOptionalNulls(withTail(body), 'RunAgentInput'))
  if (!parsed.success) return invalid(parsed.error)
  const own = Own.safeParse(parsed.data)
  if (!own.success) return invalid(own.error)
  const { messages, resume, state, tools, context } = parsed.data
  const [first] = messages
  if (first?.role !== 'user') return refused('messages', 'at least one user message is expected')
  const content = UserContent.safeParse(first.content)
  if (!content.success) return refused('messages', 'the last user message has no usable content')
  if (!ForeignId.safeParse(first.id).success) {
    return refused('messages', 'the id of the last user message has 1 to 256 characters')
  }
  return {
    kind: 'input',
    input: {
      threadId: own.data.threadId,
      runId: own.data.runId,
      message: content.data,
      messageId: first.id,
      state,
      tools: tools as RunAgentInput['tools'],
      context,
      forwardedProps: own.data.forwardedProps,
      answersPending: (resume?.length ?? 0) > 0 || messages.at(-1)?.role === 'tool',
    },
  }
}

function withTail(body: unknown): unknown {
  if (typeof body !== 'object' || body === null || !('messages' in body)) return body
  const { messages } = body
  if (!Array.isArray(messages)) return body
  const last = messages.findLastIndex(
    (message: unknown) =>
      typeof message === 'object' &&
      message !== null &&
      'role' in message &&
      message.role === 'user',
  )
  return { ...body, messages: last < 0 ? [] : messages.slice(last) }
}

function invalid(error: {
  issues: readonly { path: PropertyKey[]; message: string }[]
}): AgentInputOutcome {
  const errors = error.issues.map(({ path, message }) => ({ path: path.join('.'), message }))
  return { kind: 'invalid', errors }
}

function refused(path: string, message: string): AgentInputOutcome {
  return { kind: 'invalid', errors: [{ path, message }] }
}
