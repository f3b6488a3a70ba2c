import { sanitize, type TokenUsage } from '@holdfast/protocol'
import { AgentFailure } from '../agent.ts'
import { type Fields, fieldsOf, objectsOf, textOf } from '../loose-json.ts'

/** What one chunk of a completion, or a whole one, adds. */
export type ChatPiece = {
  readonly text: string
  readonly reasoning: string
  readonly calls: readonly CallPiece[]
  readonly finishReason: string | undefined
  /** Of the whole request so far; the last one counts. */
  readonly usage: TokenUsage | undefined
}

/** A part of a tool call. Servers leave out the index, the id, or both. */
export type CallPiece = {
  readonly index: number | undefined
  readonly id: string
  readonly name: string
  readonly arguments: string
}

/**
 * Reads a chunk (`delta`) or a whole completion (`message`) of any server that is nearly compatible:
 * null is the same as left out, unknown fields are passed over, only the first choice counts.
 * @throws AgentFailure upstream_error if it is no object, or says in any way that something failed
 */
export function chatPiece(value: unknown): ChatPiece {
  const whole = fieldsOf(value)
  if (!whole) throw new AgentFailure('upstream_error', 'the model sent something that is no chunk')
  refuseError(whole)
  const choice = objectsOf(whole['choices']).find(isFirst)
  if (choice) refuseError(choice)
  const said = fieldsOf(choice?.['delta']) ?? fieldsOf(choice?.['message']) ?? {}
  const { text, reasoning } = spoken(said)
  const finishReason = sanitize(textOf(choice?.['finish_reason'])) || undefined
  if (finishReason === 'error') {
    throw new AgentFailure('upstream_error', 'the model ended its answer with an error')
  }
  return { text, reasoning, calls: callPieces(said), finishReason, usage: usageOf(whole) }
}

function isFirst(choice: Fields): boolean {
  return (choice['index'] ?? 0) === 0
}

/** Servers that run out of something in mid-stream have no status left to say so. */
function refuseError(fields: Fields): void {
  const { error } = fields
  const isError = fields['object'] === 'error' || fields['type'] === 'error'
  if (!isError && (error === undefined || error === null || error === false)) return
  const details = fieldsOf(error) ?? fields
  const words = JSON.stringify(error ?? fields).slice(0, 2000)
  throw new AgentFailure('upstream_error', `the model answered with an error: ${words}`, {
    retryable: [details['code'], details['status'], details['type']].some(isPassing),
  })
}

/** What an error status of the same meaning would have been retried for. */
function isPassing(code: unknown): boolean {
  const status = Number(code)
  if (status === 429 || (status >= 500 && status < 600)) return true
  return typeof code === 'string' && /overloaded|rate_limit|server_error|unavailable/.test(code)
}

/** Text is a string or a list of parts, of which some may be thoughts; a refusal is an answer. */
function spoken(said: Fields): { text: string; reasoning: string } {
  const { content } = said
  const thoughts = objectsOf(content)
    .filter((part) => part['type'] === 'thinking')
    .map((part) => partsText(part['thinking']))
  const own = textOf(said['reasoning_content']) || textOf(said['reasoning'])
  return {
    text: partsText(content) + textOf(said['refusal']),
    reasoning: own + thoughts.join(''),
  }
}

function partsText(content: unknown): string {
  if (!Array.isArray(content)) return textOf(content)
  return objectsOf(content)
    .map((part) => textOf(part['text']))
    .join('')
}

function callPieces(said: Fields): CallPiece[] {
  const calls = objectsOf(said['tool_calls'])
  // Before tools there were functions: one call, without an id.
  const all = said['function_call'] ? [...calls, { function: said['function_call'] }] : calls
  return all.map((fields: Fields) => {
    const made = fieldsOf(fields['function']) ?? {}
    return {
      index: typeof fields['index'] === 'number' ? fields['index'] : undefined,
      id: sanitize(textOf(fields['id'])),
      name: sanitize(textOf(made['name'])),
      arguments: argumentsText(made['arguments']),
    }
  })
}

/** Some servers give the object itself. */
function argumentsText(given: unknown): string {
  if (given === undefined || given === null) return ''
  return typeof given === 'string' ? given : JSON.stringify(given)
}

function usageOf(whole: Fields): TokenUsage | undefined {
  const usage = fieldsOf(whole['usage']) ?? fieldsOf(fieldsOf(whole['x_groq'])?.['usage'])
  if (!usage) return undefined
  const input = fieldsOf(usage['prompt_tokens_details']) ?? {}
  const output = fieldsOf(usage['completion_tokens_details']) ?? {}
  const counts = {
    inputTokens: usage['prompt_tokens'],
    outputTokens: usage['completion_tokens'],
    totalTokens: usage['total_tokens'],
    cachedInputTokens: input['cached_tokens'],
    reasoningTokens: output['reasoning_tokens'],
  }
  const known = Object.entries(counts).filter(([, count]) => isCount(count))
  return known.length === 0 ? undefined : Object.fromEntries(known)
}

function isCount(value: unknown): boolean {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0
}
