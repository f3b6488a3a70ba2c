import type {
  Context,
  Interrupt,
  JsonPatch,
  Message,
  ResumeEntry,
  TokenUsage,
  Tool,
} from '@holdfast/protocol'
import type { Source } from './closing.ts'
import type { Interruption } from './interruption.ts'
import type { Scoped } from './scope.ts'
import type { EffectCall, EffectOptions } from './step.ts'

/**
 * A turn as its agent sees it: what was asked, how to answer, and a scope to work in. In the
 * scopes within (`group`, `timeout`, `shield`) bodies get a run of their own, bound to that scope:
 * what it says and does there ends with the scope.
 */
export interface Run extends Scoped<Run> {
  readonly id: string
  readonly conversationId: string
  /** The attempt's number, from 1; higher after every takeover, hand-back or retry. */
  readonly attempt: number
  /** On whose behalf. Give it to tools and upstreams; nobody else's data may enter this run. */
  readonly principal: { readonly tenant: string; readonly user: string }

  /** For a model: every tool call answered, this turn's user message last. */
  readonly messages: readonly Message[]
  /** As stored, with activity and reasoning, up to and with this turn's user message. */
  readonly history: readonly Message[]
  /** Tools that the front end offers. */
  readonly tools: readonly Tool[]
  /** What the front end says of where it is. */
  readonly context: readonly Context[]
  readonly forwardedProps: Readonly<Record<string, unknown>>
  /** Answers to the interrupts of the turn before, all of them; empty if there were none. */
  readonly resume: readonly ResumeEntry[]
  /** Calls of turns before that wait for this run to answer them, with `answer`. */
  readonly openCalls: readonly OpenCall[]
  /** What this run's last checkpoint saved; null if there is none. */
  readonly saved: Saved | null
  /** The conversation's shared state. */
  readonly state: SharedState

  /**
   * Says something: whole, or as it comes. Ends the message whatever happens.
   * @returns the whole text
   */
  text(content: string | Source<string>): Promise<string>
  /** The same for what the model thinks. */
  reasoning(content: string | Source<string>): Promise<string>
  /**
   * Calls a tool where readers can see it: the call, its arguments and its result, which is a step
   * of the run. A text result is shown as it is, anything else as JSON. When it fails the call is
   * answered `failed`, when it is cancelled `cancelled`, and the error goes on.
   * @param args JSON
   * @param options what becomes of it when a runner is lost in it; `stop` unless it says otherwise
   */
  tool<T>(
    name: string,
    args: unknown,
    work: (call: EffectCall<Run>) => T | Promise<T>,
    options?: Partial<EffectOptions<T>> & {
      /** Names the call in this run; made of name and arguments when left out. */
      readonly key?: string
    },
  ): Promise<T>
  /**
   * Shows a call that this run does not answer itself: of a tool of the front end, which the page
   * answers when the run has succeeded, or one that an interrupt asks consent for.
   * @returns the call's id, for the `toolCallId` of an interrupt
   */
  call(name: string, args: unknown): Promise<string>
  /** Does what an open call asks for, and shows the result: `tool` without the call. */
  answer<T>(
    open: OpenCall,
    work: (call: EffectCall<Run>) => T | Promise<T>,
    options?: Partial<EffectOptions<T>>,
  ): Promise<T>
  /**
   * An effect outside that is not shown: its intent is durable before `work` begins, its outcome
   * before the step resolves. A step with an outcome is not done again by any attempt.
   * @param key names it in this run, the same in every attempt
   */
  step<T>(
    key: string,
    options: EffectOptions<T>,
    work: (call: EffectCall<Run>) => T | Promise<T>,
  ): Promise<T>
  /**
   * Saves what a later attempt needs to go on from here; what was said before is durable by then.
   * JSON, at most 1 MiB; the last one counts. Not while something else of the agent is speaking.
   */
  checkpoint(data: unknown): Promise<void>
  /**
   * Writes a file of the run; resolves when it is durable. The same name again replaces it. Kept
   * with the attempt that ends the run. At most 1 GiB, streamed.
   */
  artifact(
    name: string,
    options: { readonly mediaType: string },
    body: string | Uint8Array | AsyncIterable<Uint8Array | string>,
  ): Promise<void>
  /** Return it, and the turn ends as one that waits for somebody's answers. */
  interrupt(...interrupts: readonly [Ask, ...Ask[]]): Interruption
  /** Adds what a model has cost to the run's usage. */
  usage(spent: TokenUsage): void
  /** Lines of the service's log, which name run and attempt. Nobody outside reads them. */
  readonly log: Log
}

export type OpenCall = { readonly toolCallId: string; readonly name: string }

/** What is asked of a person; an id is made when it has none. */
export type Ask = Omit<Interrupt, 'id'> & { readonly id?: string }

export type Saved = {
  /** What was given to `checkpoint`. */
  readonly data: unknown
  /** What was said up to the checkpoint stands; if not, it was withdrawn and has to be said again. */
  readonly current: boolean
}

export type SharedState = {
  /** As this run has left it so far; `undefined` if the conversation never had one. */
  readonly value: unknown
  set(value: unknown): Promise<void>
  /**
   * An RFC 6902 patch.
   * @throws HoldfastError invalid/invalid_patch, and nothing is changed, when it does not fit
   */
  patch(operations: JsonPatch): Promise<void>
}

type Line = { (fields: object, message?: string): void; (message: string): void }
export type Log = {
  readonly debug: Line
  readonly info: Line
  readonly warn: Line
  readonly error: Line
}
