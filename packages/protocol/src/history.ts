import type { AssistantMessage, ToolCall, ToolMessage } from '@ag-ui/core'
import type { Message } from './event.ts'

export type MessageStatus = 'complete' | 'partial'

export type HistoryOptions = {
  /** 'complete' leaves interrupted answers out. */
  history: 'all' | 'complete'
  /** By message id; a message that is not in it is complete. */
  statuses: ReadonlyMap<string, MessageStatus>
  /** Calls that the agent answers itself as it goes on: they stay without a result. */
  openCalls?: ReadonlySet<string>
}

const INTERRUPTED = '[This answer was interrupted.]'

/**
 * What a model gets to read of a conversation: every call has exactly one result, right behind
 * it, no result is without its call, arguments are JSON, nothing is empty, and nothing is there
 * that is only for people to see. User messages always enter.
 */
export function agentHistory(messages: readonly Message[], options: HistoryOptions): Message[] {
  const results = resultsByCall(messages)
  const noted = options.history === 'all' ? lastOfEachInterrupted(messages, options) : new Set()
  return messages.flatMap((message): Message[] => {
    switch (message.role) {
      case 'user':
        return [message]
      // Results stand with their calls.
      case 'tool':
      case 'activity':
        return []
      default:
        if (options.history === 'complete' && isPartial(message, options)) return []
        if (message.role === 'assistant') {
          return answered(noted.has(message.id) ? withNote(message) : message, results, options)
        }
        return isEmpty(message) ? [] : [message]
    }
  })
}

function resultsByCall(messages: readonly Message[]): Map<string, ToolMessage> {
  const results = new Map<string, ToolMessage>()
  for (const message of messages) {
    if (message.role === 'tool' && !results.has(message.toolCallId)) {
      results.set(message.toolCallId, message)
    }
  }
  return results
}

/** One note an answer, however many messages the model had begun. */
function lastOfEachInterrupted(
  messages: readonly Message[],
  options: HistoryOptions,
): ReadonlySet<string> {
  const ids = new Set<string>()
  let last: string | undefined
  for (const message of messages) {
    if (message.role === 'assistant') {
      last = isPartial(message, options) ? message.id : undefined
    } else if (message.role === 'user') {
      if (last !== undefined) ids.add(last)
      last = undefined
    }
  }
  return last === undefined ? ids : ids.add(last)
}

function isPartial(message: Message, options: HistoryOptions): boolean {
  return options.statuses.get(message.id) === 'partial'
}

function withNote(message: AssistantMessage): AssistantMessage {
  return {
    ...message,
    content: message.content ? `${message.content}\n\n${INTERRUPTED}` : INTERRUPTED,
  }
}

function answered(
  message: AssistantMessage,
  results: Map<string, ToolMessage>,
  { openCalls }: HistoryOptions,
): Message[] {
  const { toolCalls = [], ...rest } = message
  if (toolCalls.length === 0) return isEmpty(message) ? [] : [rest]
  return [
    { ...message, toolCalls: toolCalls.map(withValidArguments) },
    ...toolCalls.flatMap((call) => {
      const result = results.get(call.id)
      if (result) return [result]
      return openCalls?.has(call.id) ? [] : [interruptedResult(call)]
    }),
  ]
}

/** A call that was cut in the middle has arguments that no provider takes back. */
function withValidArguments(call: ToolCall): ToolCall {
  try {
    JSON.parse(call.function.arguments)
    return call
  } catch {
    return { ...call, function: { ...call.function, arguments: '{}' } }
  }
}

function interruptedResult(call: ToolCall): ToolMessage {
  return {
    id: `${call.id}:interrupted`,
    role: 'tool',
    toolCallId: call.id,
    content: 'interrupted',
  }
}

/** Reasoning that is encrypted is not empty: its provider wants it back. */
function isEmpty(message: Message): boolean {
  return !message.content && !('encryptedValue' in message && message.encryptedValue)
}
