import type { Context, Message } from '@holdfast/protocol'
import { type ChatPart, chatParts, plainText } from './chat-parts.ts'

export type ChatToolCall = {
  readonly id: string
  readonly type: 'function'
  readonly function: { readonly name: string; readonly arguments: string }
}

export type ChatMessage =
  | { readonly role: 'system'; readonly content: string }
  | { readonly role: 'user'; readonly content: string | readonly ChatPart[] }
  | {
      readonly role: 'assistant'
      readonly content: string | null
      readonly tool_calls?: readonly ChatToolCall[]
    }
  | { readonly role: 'tool'; readonly tool_call_id: string; readonly content: string }

/** A conversation that is valid for a model, in chat completions' words. Reasoning is left out. */
export function chatMessages(messages: readonly Message[]): ChatMessage[] {
  return messages.flatMap((message): ChatMessage[] => {
    switch (message.role) {
      case 'system':
      case 'developer':
        return [{ role: 'system', content: message.content }]
      case 'user':
        return [{ role: 'user', content: chatParts(message.content) }]
      case 'assistant':
        return assistantMessage(message.content ?? '', message.toolCalls ?? [])
      case 'tool':
        return [
          { role: 'tool', tool_call_id: message.toolCallId, content: plainText(message.content) },
        ]
      default:
        return []
    }
  })
}

/** Nothing for an answer in which nothing was said: no provider takes it. */
export function assistantMessage(
  text: string,
  calls: readonly { id: string; function: { name: string; arguments: string } }[],
): ChatMessage[] {
  if (calls.length === 0) return text === '' ? [] : [{ role: 'assistant', content: text }]
  return [
    {
      role: 'assistant',
      content: text || null,
      tool_calls: calls.map(({ id, function: made }) => ({
        id,
        type: 'function',
        function: { name: made.name, arguments: made.arguments },
      })),
    },
  ]
}

/** The same with results for calls that have none yet, each right behind its call and the results that are there. */
export function withResults(
  messages: readonly ChatMessage[],
  answered: readonly { readonly id: string; readonly result?: string | undefined }[],
): ChatMessage[] {
  let missing: ChatMessage[] = []
  const whole = messages.flatMap((message): ChatMessage[] => {
    if (message.role === 'tool') return [message]
    const before = missing
    const made = message.role === 'assistant' ? (message.tool_calls ?? []) : []
    missing = made.flatMap(({ id }): ChatMessage[] => {
      const content = answered.find((call) => call.id === id)?.result
      return content === undefined ? [] : [{ role: 'tool', tool_call_id: id, content }]
    })
    return [...before, message]
  })
  return [...whole, ...missing]
}

/** What the model is told before anything else: the operator's words, then what the front end shows. */
export function systemMessage(
  system: string | undefined,
  context: readonly Context[],
): ChatMessage[] {
  const shown = context.map(({ description, value }) => `${description}: ${value}`)
  const told = shown.length === 0 ? [] : [`Context of the application:\n${shown.join('\n')}`]
  const content = [...(system ? [system] : []), ...told].join('\n\n')
  return content === '' ? [] : [{ role: 'system', content }]
}
