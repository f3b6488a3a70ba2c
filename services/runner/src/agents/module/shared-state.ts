import type { SharedState } from '@holdfast/agent-kit'
import { EventType, patched, sanitize } from '@holdfast/protocol'
import { HoldfastError } from '@holdfast/std'
import { asJson } from './json.ts'
import type { Turn } from './turn.ts'

/** The conversation's state, changed where readers see it. */
export function sharedState(turn: Turn, signal: AbortSignal): SharedState {
  return {
    get value() {
      return structuredClone(turn.state)
    },
    async set(value) {
      signal.throwIfAborted()
      const snapshot = sanitize(asJson('the state', value) ?? null)
      turn.state = snapshot
      await turn.emit({ type: EventType.STATE_SNAPSHOT, snapshot })
    },
    async patch(operations) {
      signal.throwIfAborted()
      const delta = sanitize(asJson('the patch', operations)) as typeof operations
      const result = patched(turn.state === undefined ? {} : turn.state, delta)
      if (!result.ok) {
        throw new HoldfastError('invalid', 'invalid_patch', 'the patch does not fit the state')
      }
      turn.state = result.document
      await turn.emit({ type: EventType.STATE_DELTA, delta })
    },
  }
}
