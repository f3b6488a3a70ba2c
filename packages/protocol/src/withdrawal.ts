import { EventType } from '@ag-ui/core'
import { closingEvents } from './closing.ts'
import type { AgUiEvent, Message } from './event.ts'
import type { Fold } from './fold.ts'
import type { AttemptReason } from './run-state.ts'

export type Withdrawal = {
  /** The run's log so far, with or without the turns before it. */
  fold: Pick<Fold, 'messages' | 'open'>
  /** Of the attempt that begins. */
  epoch: number
  reason: AttemptReason
  /** The turns up to this one, this turn's user message included, and nothing of the answer. */
  history: readonly Message[]
  /** The state as this turn began; `undefined` if there was none. */
  state: unknown
}

/** CUSTOM `holdfast.attempt`: says that an attempt begins, and why. */
export function attemptEvent(epoch: number, reason: AttemptReason): AgUiEvent {
  return { type: EventType.CUSTOM, name: 'holdfast.attempt', value: { epoch, reason } }
}

/**
 * The first events of an attempt: after them every reader holds what it held as the turn began.
 * Calls of the lost attempt get no results, since their messages are gone.
 */
export function withdrawalEvents(withdrawal: Withdrawal): AgUiEvent[] {
  const { fold, epoch, reason, history, state } = withdrawal
  if (reason === 'first') return [attemptEvent(epoch, reason)]
  return [
    ...closingEvents(fold, { answerTools: false, mintId: () => '' }),
    attemptEvent(epoch, reason),
    { type: EventType.STATE_SNAPSHOT, snapshot: state === undefined ? {} : state },
    { type: EventType.MESSAGES_SNAPSHOT, messages: [...history, ...emptied(fold, history)] },
  ]
}

/**
 * Clients keep reasoning and activity that a snapshot does not mention, so what the lost attempt
 * left of them cannot be removed, only emptied.
 */
function emptied(fold: Pick<Fold, 'messages'>, history: readonly Message[]): Message[] {
  const kept = new Set(history.map((message) => message.id))
  return fold.messages.flatMap((message): Message[] => {
    if (kept.has(message.id)) return []
    const owner =
      message.subagentRunId === undefined ? {} : { subagentRunId: message.subagentRunId }
    if (message.role === 'reasoning') {
      return [{ id: message.id, role: 'reasoning', content: '', ...owner }]
    }
    if (message.role !== 'activity') return []
    const { id, role, activityType } = message
    return [{ id, role, activityType, content: {}, ...owner }]
  })
}
