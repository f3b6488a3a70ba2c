import type { ArtifactBody } from '@holdfast/artifacts'
import type {
  AgUiEvent,
  AttemptReason,
  Context,
  Interrupt,
  Message,
  ResumeEntry,
  RunErrorCode,
  TokenUsage,
  Tool,
  UnansweredCall,
} from '@holdfast/protocol'
import type { Logger } from 'pino'
import type { Checkpoint, SpanOptions, StepCall, StepOptions } from './step.ts'

/** Everything an agent may know and do in one attempt of a run. */
export type AgentRun = {
  readonly runId: string
  readonly conversationId: string
  readonly tenantId: string
  readonly userId: string
  /** The attempt's number; `runId.epoch` is what upstreams see as run id. */
  readonly epoch: number
  readonly reason: AttemptReason
  /**
   * Valid for a model but for `openCalls`: every tool call answered, what this turn brought last, no activity. What
   * `history` only refers to is in it, as data.
   */
  readonly messages: readonly Message[]
  /** The conversation's state as this turn began; `undefined` if it never had one. */
  readonly state: unknown
  readonly tools: readonly Tool[]
  readonly context: readonly Context[]
  readonly forwardedProps: Readonly<Record<string, unknown>>
  /** Every interrupt of the turn before this one with its answer; one that nobody answered is cancelled. */
  readonly resume: readonly ResumeEntry[]
  /** Calls of earlier turns that this run answers itself, by TOOL_CALL_RESULT; `messages` have no result for them. */
  readonly openCalls: readonly UnansweredCall[]
  /** Message and tool call ids that stand in this conversation's log already, lost attempts included. */
  readonly usedIds: ReadonlySet<string>
  /** The stored history (with ids, activity and reasoning) up to and with this turn's user message. */
  readonly history: readonly Message[]
  /** Aborts with the typed reason when the attempt must end (cancel, deadline, drain, lease lost). */
  readonly signal: AbortSignal
  readonly log: Logger
  /**
   * Puts events into the log, in order; resolves when there is room for more. Rejects when the
   * attempt is over. Events must be complete AG-UI events with unique ids; deltas may be small.
   */
  emit(events: readonly AgUiEvent[]): Promise<void>
  /** To be asked before each outgoing byte after a gap: throws when the lease's limit has passed. */
  assertHeld(): void
  /**
   * An effect outside that is never repeated silently: its intent is durable before `fn` is called, its outcome before
   * the step resolves. `key` names it within the run; a step that has an outcome is not called again by any attempt.
   */
  step<T>(key: string, options: StepOptions<T>, fn: (call: StepCall) => Promise<T> | T): Promise<T>
  /**
   * Saves what the agent needs to go on from here; everything that was emitted before is durable by then. JSON, at most
   * 1 MiB; the last one counts. Not while something else of the agent emits, since `data` cannot know of it.
   */
  checkpoint(data: unknown): Promise<void>
  /** The last checkpoint of the run as this attempt began; `null`: there is none. */
  readonly saved: Checkpoint | null
  /** Runs `fn` as a part of the timeline that has no effect to be careful about. */
  span<T>(key: string, options: SpanOptions, fn: () => Promise<T> | T): Promise<T>
  /**
   * Writes a file of the run; resolves when it is whole and durable. It can be read once the run has ended, if this
   * attempt is the one that ended it: a later attempt starts without files and writes its own. The same name again
   * replaces. What was written counts in whatever state the run ends; what is under way when the agent returns does not.
   * At most 1 GiB, streamed; an abort closes the body.
   */
  artifact(name: string, options: { mediaType: string }, body: ArtifactBody): Promise<void>
}

/** How an agent ended by itself. Failures are thrown as AgentFailure. */
export type AgentResult = {
  readonly outcome: 'success' | 'interrupt' | 'cancelled'
  readonly interrupts?: readonly Interrupt[]
  readonly result?: unknown
  readonly usage?: readonly TokenUsage[]
}

export interface Agent {
  readonly type: string
  /**
   * It goes on from a checkpoint that is the end of the log (`saved.current`): what was said up to there is not
   * withdrawn after a takeover or hand-back. Without it every attempt says everything again.
   */
  readonly resumes?: boolean
  /** Tool calls happen at its upstream and are only told of: a lost one is in doubt as `effects` says. */
  readonly callsElsewhere?: boolean
  run(run: AgentRun): Promise<AgentResult>
  /** Ends what outlives single runs, when no run is executed any more. */
  close?(): Promise<void>
}

/** The agent or its upstream failed. `message` and `cause` stay in the server's log. */
export class AgentFailure extends Error {
  override readonly name = 'AgentFailure'
  readonly code: RunErrorCode
  /** May be tried again if nothing of this attempt was visible yet. */
  readonly retryable: boolean
  readonly retryAfterMs: number | undefined
  readonly usage: readonly TokenUsage[] | undefined

  constructor(
    code: RunErrorCode,
    message: string,
    options: {
      cause?: unknown
      retryable?: boolean
      retryAfterMs?: number | undefined
      usage?: readonly TokenUsage[] | undefined
    } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.code = code
    this.retryable = options.retryable ?? false
    this.retryAfterMs = options.retryAfterMs
    this.usage = options.usage
  }
}
