import type { ChatMessage } from './chat-messages.ts'

/** What every message costs beyond its words: its role and its frame. */
const MESSAGE_TOKENS = 4
/** A picture at high detail is billed about so; a file's tokens cannot be known from its bytes. */
const PART_TOKENS = 1100

/**
 * The conversation without its oldest turns, so that it is about `tokensMax` long at most. Whole turns go, each with
 * its calls and results, so what is left begins with a user's message. What stands before the first turn, and the last
 * turn, always stay.
 * @param fixedTokens what else is sent: tools
 */
export function fitContext(
  messages: readonly ChatMessage[],
  tokensMax: number,
  fixedTokens = 0,
): ChatMessage[] {
  const [before = [], ...turns] = turnsOf(messages)
  const last = turns.pop() ?? []
  let left = tokensMax - fixedTokens - tokensOf([...before, ...last])
  const kept: ChatMessage[][] = [last]
  for (const turn of turns.reverse()) {
    left -= tokensOf(turn)
    if (left < 0) break
    kept.unshift(turn)
  }
  return [...before, ...kept.flat()]
}

/** First what stands before any user's message, then each user's message with what follows it. */
function turnsOf(messages: readonly ChatMessage[]): ChatMessage[][] {
  const turns: ChatMessage[][] = [[]]
  for (const message of messages) {
    if (message.role === 'user') turns.push([])
    turns.at(-1)?.push(message)
  }
  return turns
}

function tokensOf(messages: readonly ChatMessage[]): number {
  return messages.reduce((sum, message) => sum + MESSAGE_TOKENS + contentTokens(message), 0)
}

function contentTokens(message: ChatMessage): number {
  const { content } = message
  const calls = 'tool_calls' in message ? textTokens(JSON.stringify(message.tool_calls)) : 0
  if (content === null || typeof content === 'string') return calls + textTokens(content ?? '')
  return content.reduce(
    (sum, part) => sum + (part.type === 'text' ? textTokens(part.text) : PART_TOKENS),
    calls,
  )
}

/**
 * An estimate that is rather too high than too low for today's vocabularies: 3.5 characters of ASCII a token, one token
 * for each other character. Exact counts need the model's own vocabulary, megabytes for each family of models.
 */
export function textTokens(text: string): number {
  const others = text.match(/\P{ASCII}/gu)?.length ?? 0
  return Math.ceil((text.length - others) / 3.5) + others
}
