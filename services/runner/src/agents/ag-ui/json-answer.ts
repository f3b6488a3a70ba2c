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
