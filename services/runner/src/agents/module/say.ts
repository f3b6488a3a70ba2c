import { closing, type Scoped, type Source } from '@holdfast/agent-kit'
import { type AgUiEvent, EventType, joinSurrogates } from '@holdfast/protocol'
import type { Turn } from './turn.ts'

/** A long text is many deltas, none of which is too much at once. */
const PIECE_CHARS = 16_384

/**
 * Text or reasoning, whole or as it comes, as one message. Nothing is begun until there is something to say, and what
 * was begun is ended however this ends.
 */
export async function say(
  turn: Turn,
  { signal }: Pick<Scoped<unknown>, 'signal'>,
  kind: 'text' | 'reasoning',
  content: string | Source<string>,
): Promise<string> {
  const message = kind === 'text' ? textMessage(turn) : reasoningMessage(turn)
  const pairs = joinSurrogates()
  let whole = ''

  async function add(text: string) {
    if (text === '') return
    const begins = whole === '' ? message.start : []
    whole += text
    await turn.emit(...begins, message.delta(text))
  }

  try {
    if (typeof content === 'string') {
      for (let at = 0; at < content.length; at += PIECE_CHARS) {
        signal.throwIfAborted()
        await add(pairs.push('', content.slice(at, at + PIECE_CHARS)))
      }
    } else {
      for await (const piece of closing(content, signal)) {
        if (typeof piece !== 'string') throw new TypeError(`${kind}: ${typeof piece} is not text`)
        await add(pairs.push('', piece))
      }
    }
    await add(pairs.end(''))
    return whole
  } finally {
    if (whole !== '') await turn.close(...message.end)
  }
}

type Message = {
  readonly start: readonly AgUiEvent[]
  readonly end: readonly AgUiEvent[]
  delta(text: string): AgUiEvent
}

function textMessage(turn: Turn): Message {
  const messageId = turn.mint('m')
  return {
    start: [{ type: EventType.TEXT_MESSAGE_START, messageId, role: 'assistant' }],
    delta: (delta) => ({ type: EventType.TEXT_MESSAGE_CONTENT, messageId, delta }),
    end: [{ type: EventType.TEXT_MESSAGE_END, messageId }],
  }
}

function reasoningMessage(turn: Turn): Message {
  const spanId = turn.mint('r')
  const messageId = turn.mint('r')
  return {
    start: [
      { type: EventType.REASONING_START, messageId: spanId },
      { type: EventType.REASONING_MESSAGE_START, messageId, role: 'reasoning' },
    ],
    delta: (delta) => ({ type: EventType.REASONING_MESSAGE_CONTENT, messageId, delta }),
    end: [
      { type: EventType.REASONING_MESSAGE_END, messageId },
      { type: EventType.REASONING_END, messageId: spanId },
    ],
  }
}
