/**
 * Why work was told to stop. `cancel`: somebody does not want it any more; `deadline`: its time is
 * over; `drain`: this process goes away; `lease_lost`: another process does it now;
 * `sibling_failed`: something that was started together with it has failed.
 */
export type CancelReason = 'cancel' | 'deadline' | 'drain' | 'lease_lost' | 'sibling_failed'

/**
 * What the signal of a scope aborts with, and what a wait in it rejects with. It is no failure:
 * clean up in `finally` and let it go on upwards.
 */
export class Cancelled extends Error {
  override readonly name = 'Cancelled'
  readonly reason: CancelReason

  constructor(reason: CancelReason, options: { cause?: unknown } = {}) {
    super(`cancelled: ${reason}`, options.cause === undefined ? undefined : options)
    this.reason = reason
  }
}

/** A scope's own deadline has passed. A failure, thrown by the `timeout` whose deadline it was. */
export class DeadlineExceeded extends Error {
  override readonly name = 'DeadlineExceeded'
  /** When it was over. */
  readonly at: Date

  constructor(at: Date) {
    super(`the deadline passed at ${at.toISOString()}`)
    this.at = at
  }
}

/**
 * Whether `error` is how code under `signal` says that it has stopped: the reason itself, an error
 * that was caused by it, or any library's AbortError, once the signal has aborted.
 */
export function isCancellation(error: unknown, signal: AbortSignal): boolean {
  if (!signal.aborted) return false
  if (error instanceof AggregateError) {
    return error.errors.length > 0 && error.errors.every((one) => isCancellation(one, signal))
  }
  for (let at = error, depth = 0; at instanceof Error && depth < CAUSES_MAX; at = at.cause) {
    if (at === signal.reason || at instanceof Cancelled || at.name === 'AbortError') return true
    depth += 1
  }
  return false
}

/** A chain of causes may be a circle. */
const CAUSES_MAX = 20

/** A foreign signal's reason as one of ours: whoever aborts without a type means a cancel. */
export function cancelledBy(signal: AbortSignal): Cancelled {
  if (signal.reason instanceof Cancelled) return signal.reason
  return new Cancelled('cancel', { cause: signal.reason })
}
