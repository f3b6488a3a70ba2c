import { EventSourceParserStream } from 'eventsource-parser/stream'

/**
 * The text of a runtime's answer. Runtimes answer with events whose data is JSON text or an object with the text in it,
 * or with one JSON document; an error among the events is thrown.
 */
export async function* answerOf(
  body: ReadableStream<Uint8Array>,
  contentType: string,
  signal: AbortSignal,
): AsyncGenerator<string> {
  const text = body.pipeThrough(new TextDecoderStream(), { signal })
  if (contentType.includes('text/event-stream')) {
    for await (const { data } of text.pipeThrough(new EventSourceParserStream())) {
      yield textOf(parsed(data))
    }
    return
  }
  let whole = ''
  for await (const piece of text) whole += piece
  yield textOf(parsed(whole))
}

function parsed(data: string): unknown {
  try {
    return JSON.parse(data)
  } catch {
    return data
  }
}

const KEYS = ['data', 'delta', 'text', 'response', 'result', 'output'] as const

function textOf(said: unknown): string {
  if (typeof said === 'string') return said
  if (typeof said !== 'object' || said === null) return ''
  if ('error' in said) throw new Error('the runtime failed', { cause: said.error })
  const fields = said as Record<string, unknown>
  return KEYS.map((key) => fields[key]).find((field) => typeof field === 'string') ?? ''
}
