import { AgentFailure } from '../agent.ts'

/** The whole body as JSON. @throws AgentFailure limit_exceeded, upstream_error */
export async function jsonOf(body: AsyncIterable<Uint8Array>, bytesMax: number): Promise<unknown> {
  const parts: Uint8Array[] = []
  let size = 0
  for await (const part of body) {
    size += part.byteLength
    if (size > bytesMax) {
      throw new AgentFailure('limit_exceeded', 'the answer of the upstream is too large')
    }
    parts.push(part)
  }
  try {
    return JSON.parse(Buffer.concat(parts).toString('utf8'))
  } catch (error) {
    throw new AgentFailure('upstream_error', 'the upstream sent a body that is not JSON', {
      cause: error,
    })
  }
}

/**
 * The events of an answer that came at once instead of as a stream: a list of events, `{events}`,
 * one event, or the one message that is the whole answer.
 */
export function eventsOfJson(json: unknown, runId: string): readonly unknown[] {
  if (Array.isArray(json)) return json
  if (typeof json !== 'object' || json === null) return [json]
  if ('events' in json && Array.isArray(json.events)) return json.events
  if ('type' in json) return [json]
  if (!('role' in json) || json.role !== 'assistant' || !('content' in json)) return [json]
  const messageId = 'id' in json ? json.id : ''
  return [
    { type: 'TEXT_MESSAGE_START', messageId, role: 'assistant' },
    { type: 'TEXT_MESSAGE_CONTENT', messageId, delta: json.content },
    { type: 'TEXT_MESSAGE_END', messageId },
    { type: 'RUN_FINISHED', threadId: '', runId },
  ]
}
