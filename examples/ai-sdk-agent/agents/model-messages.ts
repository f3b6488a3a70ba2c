import type { Message } from '@holdfast/protocol'
import type { ModelMessage } from 'ai'

/** A run's messages as the AI SDK wants them. Text alone: add the parts that your model can see. */
export function modelMessages(messages: readonly Message[]): ModelMessage[] {
  const names = new Map<string, string>()
  return messages.flatMap((message): ModelMessage[] => {
    switch (message.role) {
      case 'user':
        return [{ role: 'user', content: textOf(message.content) }]
      case 'assistant': {
        const calls = message.toolCalls ?? []
        for (const call of calls) names.set(call.id, call.function.name)
        const text = textOf(message.content)
        return [
          {
            role: 'assistant',
            content: [
              ...(text === '' ? [] : [{ type: 'text' as const, text }]),
              ...calls.map((call) => ({
                type: 'tool-call' as const,
                toolCallId: call.id,
                toolName: call.function.name,
                input: JSON.parse(call.function.arguments) as unknown,
              })),
            ],
          },
        ]
      }
      case 'tool': {
        const toolName = names.get(message.toolCallId) ?? 'unknown'
        const output = { type: 'text' as const, value: textOf(message.content) }
        const { toolCallId } = message
        return [{ role: 'tool', content: [{ type: 'tool-result', toolCallId, toolName, output }] }]
      }
      default:
        return []
    }
  })
}

function textOf(content: Message['content']): string {
  if (typeof content === 'string') return content
  if (!Array.isArray(content)) return ''
  return content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join(' ')
}
