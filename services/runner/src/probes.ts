import type { ClaimedDelivery, Lease } from '@holdfast/store'

/**
 * Moments of an attempt at which a test holds the process, or breaks what is around it: named boundaries instead of
 * sleeps. In production there are none; a test's own entry installs them.
 */
export type Probes = { readonly [name in AttemptProbe]?: (lease: Lease) => Promise<void> } & {
  /** An endpoint has confirmed a notification, and that is not recorded. */
  readonly beforeConfirmation?: (delivery: Pick<ClaimedDelivery, 'eventId'>) => Promise<void>
}

export type ProbeName = keyof Probes

type AttemptProbe =
  /** Claimed, and nothing done with it yet. */
  | 'afterClaim'
  /** The next statement writes events of this attempt. */
  | 'beforeAppend'
  /** The agent has ended and everything that it said is durable. */
  | 'beforeFinish'
  /** In the terminal transaction, which holds its locks and has written nothing yet. */
  | 'insideFinish'
  /** The end is durable, and nobody has been told. */
  | 'afterFinishCommit'
  /** The run is about to be given back. */
  | 'beforeRelease'
