import { closingEvents } from './closing.ts'
import type { AgUiEvent, Interrupt, Message, TokenUsage } from './event.ts'
import { type Fold, foldEvents, type UnansweredCall, unansweredToolCalls } from './fold.ts'
import type { MessageStatus } from './history.ts'
import { RUN_ERROR_MESSAGES, type RunErrorCode, type RunOutcome } from './run-state.ts'

/** Why a run ends. Error, cancel and success are different causes and never guessed from each other. */
export type EndCause =
  | { kind: 'success'; result?: unknown; usage?: readonly TokenUsage[] }
  | { kind: 'interrupt'; interrupts: readonly Interrupt[]; usage?: readonly TokenUsage[] }
  /** `complete`: the answer was there in full when the cancel was found pending. */
  | { kind: 'cancel'; complete?: boolean; usage?: readonly TokenUsage[] }
  | { kind: 'error'; code: RunErrorCode; usage?: readonly TokenUsage[] }

/** All that the transaction which ends a run has to write. */
export type RunEnding = {
  readonly command: 'succeed' | 'fail' | 'stop'
  readonly outcome: RunOutcome
  readonly errorCode: RunErrorCode | null
  /** Somebody is to answer what the run asked, or the calls that it left to the front end. */
  readonly asks: boolean
  /** What closes the log: ENDs, answers to open tool calls, and last the terminal event. */
  readonly events: readonly AgUiEvent[]
  /** What the run said, in order; without its user message. */
  readonly messages: readonly { readonly message: Message; readonly status: MessageStatus }[]
  /** The conversation's state from now on; `undefined`: as it was. */
  readonly state: unknown
  readonly result: unknown
  readonly usage: readonly TokenUsage[]
}

/** Ends a run: pure, the same in the runner, in the sweep and for a queued run. */
export function endingOf(input: {
  fold: Fold
  cause: EndCause
  threadId: string
  /** What the log calls the run. */
  runId: string
  /** Ids of messages that are stored already: earlier turns and this turn's user message. */
  storedIds: ReadonlySet<string>
  /** Names of tools that the front end answers itself. */
  frontEndTools: ReadonlySet<string>
  /** Calls of earlier turns that this run was to answer. */
  openCalls: readonly UnansweredCall[]
  /** Another turn waits behind this one: nobody can answer what this one leaves. */
  followed: boolean
  mintId: () => string
}): RunEnding {
  const { fold, cause } = input
  const pending = pendingCalls(input)
  const closers = closingEvents(fold, {
    answerTools: true,
    mintId: input.mintId,
    pending: new Set(pending),
    earlier: input.openCalls,
  })
  const closed = foldEvents(fold, closers)
  const whole =
    cause.kind === 'success' ||
    cause.kind === 'interrupt' ||
    (cause.kind === 'cancel' && cause.complete)
  return {
    ...WHAT_IT_MEANS[cause.kind],
    errorCode: cause.kind === 'error' ? cause.code : null,
    asks: pending.length > 0 || (cause.kind === 'interrupt' && !input.followed),
    events: [...closers, terminalEvent(input.threadId, input.runId, cause, pending)],
    messages: closed.messages
      .filter((message) => !input.storedIds.has(message.id))
      .map((message) => ({ message, status: whole ? 'complete' : 'partial' })),
    state: closed.state,
    result: cause.kind === 'success' ? cause.result : undefined,
    usage: cause.usage ?? [],
  }
}

/** What somebody is still to answer: after an interrupt everything, else only what the front end calls its own. */
function pendingCalls(input: Parameters<typeof endingOf>[0]): string[] {
  const { fold, cause, frontEndTools, followed } = input
  if (followed || (cause.kind !== 'success' && cause.kind !== 'interrupt')) return []
  const asks = cause.kind === 'interrupt'
  return unansweredToolCalls(fold, asks ? input.openCalls : [])
    .filter((call) => asks || frontEndTools.has(call.name))
    .map((call) => call.toolCallId)
}

const WHAT_IT_MEANS = {
  success: { command: 'succeed', outcome: 'success' },
  interrupt: { command: 'succeed', outcome: 'interrupt' },
  cancel: { command: 'stop', outcome: 'cancelled' },
  error: { command: 'fail', outcome: 'error' },
} as const

function terminalEvent(
  threadId: string,
  runId: string,
  cause: EndCause,
  pendingToolCallIds: readonly string[],
): AgUiEvent {
  const usage = cause.usage?.length ? { usage: [...cause.usage] } : {}
  if (cause.kind === 'error') {
    const message = RUN_ERROR_MESSAGES[cause.code]
    return { type: 'RUN_ERROR', message, code: cause.code, ...usage } as AgUiEvent
  }
  const finished = { type: 'RUN_FINISHED', threadId, runId, ...usage }
  switch (cause.kind) {
    case 'success':
      return {
        ...finished,
        outcome: {
          type: 'success',
          ...(pendingToolCallIds.length ? { pendingToolCallIds: [...pendingToolCallIds] } : {}),
        },
        ...(cause.result === undefined ? {} : { result: cause.result }),
      } as AgUiEvent
    case 'interrupt':
      return {
        ...finished,
        outcome: { type: 'interrupt', interrupts: [...cause.interrupts] },
      } as AgUiEvent
    case 'cancel':
      return { ...finished, outcome: { type: 'cancelled' } } as AgUiEvent
  }
}
