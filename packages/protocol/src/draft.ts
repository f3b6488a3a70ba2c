import type { AssistantMessage, Message } from '@ag-ui/core'

/**
 * The messages of a fold while events are applied to them. What came from the base or from an
 * event is copied before its first change; what the draft made itself is changed in place, so
 * that a thousand deltas cost one copy.
 */
export type Draft = ReturnType<typeof draftOf>

export function draftOf(base: readonly Message[]) {
  const messages = [...base]
  const owned = new Set<Message>()
  let byId: Map<string, number> | undefined
  let byCall: Map<string, number> | undefined

  function forgetPositions() {
    byId = undefined
    byCall = undefined
  }

  function indexOf(id: string): number {
    byId ??= positionsById(messages)
    return byId.get(id) ?? -1
  }

  function indexOfCall(toolCallId: string): number {
    byCall ??= positionsByCall(messages)
    return byCall.get(toolCallId) ?? -1
  }

  function editAt(index: number): Message | undefined {
    const message = messages[index]
    if (!message || owned.has(message)) return message
    const copy = copyOf(message)
    owned.add(copy)
    messages[index] = copy
    return copy
  }

  return {
    messages,
    indexOf,
    indexOfCall,
    find: (id: string): Message | undefined => messages[indexOf(id)],
    /** The message with this id, safe to change until the draft is read. */
    edit: (id: string): Message | undefined => editAt(indexOf(id)),
    /** The assistant message that holds this call, safe to change, its calls included. */
    editOwnerOf(toolCallId: string): AssistantMessage | undefined {
      const message = editAt(indexOfCall(toolCallId))
      return message?.role === 'assistant' ? message : undefined
    },
    push(message: Message) {
      messages.push(message)
      if (byId && !byId.has(message.id)) byId.set(message.id, messages.length - 1)
      if (byCall) notePositions(byCall, message, messages.length - 1)
    },
    insert(index: number, message: Message) {
      messages.splice(index, 0, message)
      forgetPositions()
    },
    put(index: number, message: Message) {
      messages[index] = message
      forgetPositions()
    },
    replace(all: readonly Message[]) {
      messages.splice(0, messages.length, ...all)
      forgetPositions()
    },
    /** To be told of a call that was added to an edited message. */
    callAdded(toolCallId: string, messageId: string) {
      if (byCall && !byCall.has(toolCallId)) byCall.set(toolCallId, indexOf(messageId))
    },
  }
}

/** The first message with an id wins, as it does in AG-UI's own client. */
function positionsById(messages: readonly Message[]): Map<string, number> {
  const positions = new Map<string, number>()
  for (const [index, message] of messages.entries()) {
    if (!positions.has(message.id)) positions.set(message.id, index)
  }
  return positions
}

function positionsByCall(messages: readonly Message[]): Map<string, number> {
  const positions = new Map<string, number>()
  for (const [index, message] of messages.entries()) notePositions(positions, message, index)
  return positions
}

function notePositions(positions: Map<string, number>, message: Message, index: number) {
  if (message.role !== 'assistant') return
  for (const call of message.toolCalls ?? []) {
    if (!positions.has(call.id)) positions.set(call.id, index)
  }
}

function copyOf(message: Message): Message {
  if (message.role !== 'assistant' || !message.toolCalls) return { ...message }
  return {
    ...message,
    toolCalls: message.toolCalls.map((call) => ({ ...call, function: { ...call.function } })),
  }
}
