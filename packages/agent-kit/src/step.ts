/** What the work of a step or tool is given. */
export type EffectCall<R> = {
  /**
   * The same in every attempt: give it to whoever can tell a repeat by it. Safe as a header, at
   * most 240 characters.
   */
  readonly idempotencyKey: string
  readonly signal: AbortSignal
  /** The run, bound to this call's scope. */
  readonly run: R
}

/** For functions that are called when the agent's own scopes may be gone. */
export type AftermathCall = Pick<EffectCall<unknown>, 'idempotencyKey' | 'signal'>

/** What the outside knows of an effect. */
export type EffectAnswer<T> =
  | { readonly kind: 'done'; readonly result: T }
  | { readonly kind: 'not_done' }
  | { readonly kind: 'unknown' }

export type EffectOptions<T> = {
  /**
   * For an effect that was begun and whose outcome nobody knows, because its runner was lost:
   * `retry` does it again with the same key (reads, and effects that know the key), `ask` lets
   * `lookup` find out, `stop` ends the run `in_doubt`.
   */
  readonly policy: 'retry' | 'ask' | 'stop'
  /** Required by `ask`. */
  readonly lookup?: (call: AftermathCall) => Promise<EffectAnswer<T>>
  /** Undoes the effect when the run fails or is stopped later; the latest first. */
  readonly compensate?: (result: T, call: AftermathCall) => void | Promise<void>
}
