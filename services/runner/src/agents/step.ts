/**
 * What becomes of a step whose intent is known and whose outcome is not, because its attempt was lost or cut:
 * `retry` calls again with the same idempotency key, `ask` lets `lookup` decide, `stop` ends the run `in_doubt`.
 */
export type StepPolicy = 'retry' | 'ask' | 'stop'

/** What a step's functions are given. */
export type StepCall = {
  /** The same in every attempt of the run; safe as a header, at most 240 characters. */
  readonly idempotencyKey: string
  /** Aborts with the attempt; in a compensation only when its time is up or the lease is lost. */
  readonly signal: AbortSignal
}

/** What the outside knows of an effect. */
export type StepAnswer<T> =
  | { readonly kind: 'done'; readonly result: T }
  | { readonly kind: 'not_done' }
  | { readonly kind: 'unknown' }

export type StepOptions<T> = {
  /** For the timeline: `tool`, `model`, …; `step` when left out. */
  readonly kind?: string | undefined
  readonly policy: StepPolicy
  /** Required by `ask`. A lookup that fails is an answer too: `unknown`, which ends the run `in_doubt`. */
  readonly lookup?: ((call: StepCall) => Promise<StepAnswer<T>>) | undefined
  /**
   * Undoes the effect when the run fails or is stopped later; in reverse order, time-limited, each as a step of its own.
   * Not after an end in doubt, which people have to look at, and not when the run ends without its agent.
   */
  readonly compensate?: ((result: T, call: StepCall) => Promise<void> | void) | undefined
  /** Cuts the step, like the attempt's end does: what `fn` rejects with afterwards is no outcome. */
  readonly signal?: AbortSignal | undefined
  /** The key of the step or span that this one is part of. */
  readonly parent?: string | undefined
}

export type SpanOptions = {
  readonly kind?: string | undefined
  readonly parent?: string | undefined
}

export type Checkpoint = {
  readonly data: unknown
  /** The log's length when it was saved. */
  readonly sequence: number
  /** It is the end of the log, and what was said up to it stands: the agent goes on from here. */
  readonly current: boolean
}
