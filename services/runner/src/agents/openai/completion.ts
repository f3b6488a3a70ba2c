import {
  type AgUiEvent,
  EventType,
  joinSurrogates,
  sanitize,
  type TokenUsage,
} from '@holdfast/protocol'
import type { RunIds } from '../run-ids.ts'
import type { CallPiece, ChatPiece } from './chat-piece.ts'
import { createToolCalls, type ToolCall } from './tool-calls.ts'

/** One answer of the model while it is said. */
export type Completion = {
  /** What a piece means to readers; empty for pieces that say nothing. */
  push(piece: ChatPiece): AgUiEvent[]
  /** The model has said how it ended. What comes behind that still counts. */
  readonly finishReason: string | undefined
  readonly usage: TokenUsage | undefined
  /** Held halves of surrogate pairs: what a cut answer leaves behind. */
  flush(): AgUiEvent[]
  /** Closes all that is open. */
  end(): { events: AgUiEvent[]; said: Said }
}

export type Said = {
  /** The id of the assistant's message, of which the calls are part. */
  readonly messageId: string
  readonly text: string
  readonly calls: readonly ToolCall[]
}

export function createCompletion(ids: RunIds): Completion {
  const messageId = ids.message('')
  const joined = joinSurrogates()
  const thought = createThought(ids)
  const calls = createToolCalls(ids, messageId)
  let text = ''
  let isOpen = false
  let finishReason: string | undefined
  let usage: TokenUsage | undefined

  function say(delta: string): AgUiEvent[] {
    if (delta === '') return []
    text += delta
    const content = { type: EventType.TEXT_MESSAGE_CONTENT, messageId, delta } as const
    if (isOpen) return [content]
    isOpen = true
    return [{ type: EventType.TEXT_MESSAGE_START, messageId, role: 'assistant' }, content]
  }
  const flushText = () => say(joined.end(messageId))

  function speak(piece: ChatPiece): AgUiEvent[] {
    return [
      ...thought.end(),
      ...say(sanitize(joined.push(messageId, piece.text))),
      ...piece.calls.flatMap((call: CallPiece) => calls.push(call)),
    ]
  }

  return {
    push(piece) {
      finishReason = piece.finishReason ?? finishReason
      usage = piece.usage ?? usage
      const thoughts = thought.push(piece.reasoning)
      const isSilent = piece.text === '' && piece.calls.length === 0
      return isSilent ? thoughts : [...thoughts, ...speak(piece)]
    },
    get finishReason() {
      return finishReason
    },
    get usage() {
      return usage
    },
    flush: () => [...thought.flush(), ...flushText(), ...calls.flush()],
    end() {
      const events = [...thought.end(), ...flushText()]
      if (isOpen) events.push({ type: EventType.TEXT_MESSAGE_END, messageId })
      events.push(...calls.end())
      return { events, said: { messageId, text, calls: calls.all() } }
    },
  }
}

/** Thoughts that are interrupted by words are over; what is thought later is another message. */
function createThought(ids: RunIds) {
  const joined = joinSurrogates()
  let open: { spanId: string; messageId: string } | undefined

  function content(delta: string): AgUiEvent[] {
    if (delta === '' || !open) return []
    return [{ type: EventType.REASONING_MESSAGE_CONTENT, messageId: open.messageId, delta }]
  }
  const flush = () => (open ? content(joined.end(open.messageId)) : [])

  return {
    flush,
    push(delta: string): AgUiEvent[] {
      if (delta === '') return []
      if (open) return content(sanitize(joined.push(open.messageId, delta)))
      open = { spanId: ids.message(''), messageId: ids.message('') }
      return [
        { type: EventType.REASONING_START, messageId: open.spanId },
        {
          type: EventType.REASONING_MESSAGE_START,
          messageId: open.messageId,
          role: 'reasoning',
        },
        ...content(sanitize(joined.push(open.messageId, delta))),
      ]
    },
    end(): AgUiEvent[] {
      if (!open) return []
      const { spanId, messageId } = open
      const rest = flush()
      open = undefined
      return [
        ...rest,
        { type: EventType.REASONING_MESSAGE_END, messageId },
        { type: EventType.REASONING_END, messageId: spanId },
      ]
    },
  }
}
