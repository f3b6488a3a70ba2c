import { EventType } from '@holdfast/protocol'
import type { RunIds } from '../run-ids.ts'
import { createScopes, type Scopes } from './scopes.ts'
import { createStreamedKind, type StreamedKind } from './streamed.ts'

/** What the attempt has said so far, for those who must compare with it. */
export type Spoken = {
  readonly texts: StreamedKind
  readonly calls: StreamedKind
  readonly reasonings: StreamedKind
  readonly scopes: Scopes
  /** Upstream's message id to ours, for results and activities. */
  readonly results: Map<string, string>
  readonly activities: Map<string, string>
  /** Our ids of calls that have a result. */
  readonly answered: Set<string>
  /** Roles of texts that are not the assistant's, by our id. */
  readonly roles: Map<string, string>
  /** Upstream ids of user messages that only repeat the history. */
  readonly echoes: Set<string>
}

export function createSpoken(ids: RunIds): Spoken {
  return {
    texts: createStreamedKind({
      allocate: ids.message,
      content: (messageId, delta) => ({ type: EventType.TEXT_MESSAGE_CONTENT, messageId, delta }),
      end: (messageId) => ({ type: EventType.TEXT_MESSAGE_END, messageId }),
    }),
    calls: createStreamedKind({
      allocate: ids.call,
      content: (toolCallId, delta) => ({ type: EventType.TOOL_CALL_ARGS, toolCallId, delta }),
      end: (toolCallId) => ({ type: EventType.TOOL_CALL_END, toolCallId }),
    }),
    reasonings: createStreamedKind({
      allocate: ids.message,
      content: (messageId, delta) => ({
        type: EventType.REASONING_MESSAGE_CONTENT,
        messageId,
        delta,
      }),
      end: (messageId) => ({ type: EventType.REASONING_MESSAGE_END, messageId }),
    }),
    scopes: createScopes(ids),
    results: new Map(),
    activities: new Map(),
    answered: new Set(),
    roles: new Map(),
    echoes: new Set(),
  }
}
