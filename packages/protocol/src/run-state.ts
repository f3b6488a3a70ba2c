import * as z from 'zod'

export const RunState = z.enum(['queued', 'running', 'succeeded', 'failed', 'stopped'])
export type RunState = z.infer<typeof RunState>

export type RunCommand = 'claim' | 'take_over' | 'hand_back' | 'retry' | 'succeed' | 'fail' | 'stop'

const ENDED = {
  claim: null,
  take_over: null,
  hand_back: null,
  retry: null,
  succeed: null,
  fail: null,
  stop: null,
} as const

/** The one total table. `null`: the command is refused. The database holds the same list. */
export const TRANSITIONS = {
  queued: {
    claim: 'running',
    take_over: null,
    hand_back: null,
    retry: null,
    succeed: null,
    fail: 'failed',
    stop: 'stopped',
  },
  running: {
    claim: null,
    take_over: 'running',
    hand_back: 'queued',
    retry: 'queued',
    succeed: 'succeeded',
    fail: 'failed',
    stop: 'stopped',
  },
  succeeded: ENDED,
  failed: ENDED,
  stopped: ENDED,
} as const satisfies Record<RunState, Record<RunCommand, RunState | null>>

export type TerminalState = 'succeeded' | 'failed' | 'stopped'

/** Ended for ever: the record, its messages and its log do not change any more. */
export function isTerminal(state: RunState): state is TerminalState {
  return state === 'succeeded' || state === 'failed' || state === 'stopped'
}

/** Why a run ended, in AG-UI's words, or null while it has not. */
export const RunOutcome = z.enum(['success', 'interrupt', 'cancelled', 'error'])
export type RunOutcome = z.infer<typeof RunOutcome>

/** The codes of RUN_ERROR and of a run's `error`. */
export const RunErrorCode = z.enum([
  'upstream_error',
  'upstream_truncated',
  'upstream_timeout',
  'stalled',
  'deadline_exceeded',
  'queue_timeout',
  'attempts_exhausted',
  'runner_lost',
  'agent_error',
  'in_doubt',
  'limit_exceeded',
  'invalid_history',
  'internal',
])
export type RunErrorCode = z.infer<typeof RunErrorCode>

/** What a client may be told about each code: never a provider's own text. */
export const RUN_ERROR_MESSAGES = {
  upstream_error: 'The agent reported an error.',
  upstream_truncated: 'The agent stopped before its answer was complete.',
  upstream_timeout: 'The agent did not answer in time.',
  stalled: 'The agent made no progress for too long.',
  deadline_exceeded: 'The run passed its deadline.',
  queue_timeout: 'No runner took the run in time.',
  attempts_exhausted: 'The run was tried as often as allowed.',
  runner_lost: 'The process that executed the run was lost.',
  agent_error: 'The agent failed.',
  in_doubt: 'The run was lost after an outside effect whose result is not known.',
  limit_exceeded: 'The run passed a size limit.',
  invalid_history: 'The conversation cannot be continued as it is.',
  internal: 'An internal error ended the run.',
} as const satisfies Record<RunErrorCode, string>

/** Why an attempt began. */
export const AttemptReason = z.enum(['first', 'takeover', 'handback', 'retry'])
export type AttemptReason = z.infer<typeof AttemptReason>
