/** Why an attempt was stopped by ourselves. Five causes, never guessed from each other; a failure is none. */
export type AbortCause = 'cancel' | 'deadline' | 'drain' | 'lease_lost'

/** The typed `signal.reason` of an attempt. */
export class AttemptAborted extends Error {
  override readonly name = 'AttemptAborted'
  readonly abortCause: AbortCause

  constructor(abortCause: AbortCause) {
    super(`the attempt was stopped: ${abortCause}`)
    this.abortCause = abortCause
  }
}

/** The cause, if the signal was aborted by us. */
export function abortCauseOf(signal: AbortSignal): AbortCause | null {
  return signal.aborted && signal.reason instanceof AttemptAborted ? signal.reason.abortCause : null
}
