import { omitOptionalNulls, type RunAgentInput } from '@ag-ui/core'
import { RunAgentInputSchema } from '@ag-ui/core/schemas'
import * as z from 'zod'
import type { ToolResult } from './answers.ts'
import type { ResumeEntry, ToolMessage } from './event.ts'
import { LIMITS } from './limits.ts'
import { ForeignId, UserContent } from './rest.ts'

/** What is new in a RunAgentInput; its history is the client's memory and not ours. */
export type AgentInput = {
  threadId: string
  /** The caller's run id, which is the client turn. */
  runId: string
  /** What the user says; `null`: the input only answers what is pending. */
  message: { id: string; content: UserContent } | null
  /** Results of front-end tools, and of others that the client has in its history. */
  toolResults: ToolResult[]
  resume: ResumeEntry[]
  state: unknown
  tools: RunAgentInput['tools']
  context: RunAgentInput['context']
  forwardedProps: Record<string, unknown> | undefined
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
 * AG-UI does not know are dropped, and of the messages only what may be new is looked at: the last
 * user message, and the tool results right before it or at the end.
 */
export function readAgentInput(body: unknown): AgentInputOutcome {
  const parsed = RunAgentInputSchema.safeParse(omitOptionalNulls(withTail(body), 'RunAgentInput'))
  if (!parsed.success) return invalid(parsed.error)
  const own = Own.safeParse(parsed.data)
  if (!own.success) return invalid(own.error)
  // What zod calls optional is absent here and never undefined.
  const { messages, resume = [], state, tools, context } = parsed.data as RunAgentInput
  const said = messages.find((message) => message.role === 'user')
  const content = UserContent.safeParse(said?.content)
  if (said && !content.success) return unusable(content.error, lastPlaceOf('user', body))
  const foreign = messages.find((message) => !ForeignId.safeParse(message.id).success)
  if (foreign) {
    return refused('messages', `the id of the last ${foreign.role} message has 1 to 256 characters`)
  }
  if (messages.length === 0 && resume.length === 0) {
    return refused('messages', 'at least one user message is expected')
  }
  return {
    kind: 'input',
    input: {
      threadId: own.data.threadId,
      runId: own.data.runId,
      message: said && content.success ? { id: said.id, content: content.data } : null,
      toolResults: messages.flatMap((message) =>
        message.role === 'tool' ? [resultOf(message)] : [],
      ),
      resume,
      state,
      tools,
      context,
      forwardedProps: own.data.forwardedProps,
    },
  }
}

function resultOf({ id, toolCallId, content, error }: ToolMessage): ToolResult {
  return { messageId: id, toolCallId, content, error }
}

/** Leaves of the messages what may be new. Behind an answer, the question is what a client comes back with. */
function withTail(body: unknown): unknown {
  if (typeof body !== 'object' || body === null || !('messages' in body)) return body
  const { messages } = body
  if (!Array.isArray(messages)) return body
  const roles = messages.map(roleOf)
  const said = roles.lastIndexOf('user')
  const last = roles.length - 1
  if (roles[last] !== 'tool' && said !== last) {
    const answers = 'resume' in body && Array.isArray(body.resume) && body.resume.length > 0
    return { ...body, messages: said < 0 || answers ? [] : [messages[said]] }
  }
  const before = roles.slice(0, said === last ? last : last + 1)
  const results = before.length - 1 - before.findLastIndex((role) => role !== 'tool')
  return { ...body, messages: messages.slice(before.length - results) }
}

function roleOf(message: unknown): unknown {
  return typeof message === 'object' && message !== null && 'role' in message
    ? message.role
    : undefined
}

function invalid(error: {
  issues: readonly { path: PropertyKey[]; message: string }[]
}): AgentInputOutcome {
  const errors = error.issues.map(({ path, message }) => ({ path: path.join('.'), message }))
  return { kind: 'invalid', errors }
}

/** Says which part cannot be used, where one can be named. */
function unusable(error: z.ZodError, place: number): AgentInputOutcome {
  const named = error.issues.filter(({ path }) => path.length > 0)
  if (named.length === 0) return refused('messages', 'the last user message has no usable content')
  const errors = named.map(({ path, message }) => ({
    path: ['messages', place, 'content', ...path].join('.'),
    message,
  }))
  return { kind: 'invalid', errors }
}

function lastPlaceOf(role: string, body: unknown): number {
  const { messages } = body as { messages: readonly unknown[] }
  return messages.map(roleOf).lastIndexOf(role)
}

function refused(path: string, message: string): AgentInputOutcome {
  return { kind: 'invalid', errors: [{ path, message }] }
}
