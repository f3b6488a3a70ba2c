import type { AgUiEvent, Message } from '@holdfast/protocol'

// What everybody in a campaign writes down for himself while it goes on, and what the database says at its end.
// Instants are milliseconds since 1970 by the clock of the machine, which the database shares.

export type Turn = {
  readonly user: string
  readonly clientTurnId: string
  readonly message: string
  readonly agent: string
  readonly onActive: 'reject' | 'enqueue' | 'cancel'
  /** Every answer that came; a request without one may or may not have been accepted. */
  readonly answers: TurnAnswer[]
  /** Requests that nobody answered, or with a failure that leaves it open. */
  unanswered: number
}

export type TurnAnswer = {
  readonly status: number
  readonly runId: string | null
  readonly conversationId: string | null
  readonly code: string | null
  readonly activeRunId: string | null
  readonly sentAtMs: number
  readonly atMs: number
}

export type Cancel = {
  readonly runId: string
  readonly status: number
  readonly state: string
  readonly sentAtMs: number
  readonly atMs: number
}

/** A run as `GET /runs/{id}` showed it. */
export type View = {
  readonly runId: string
  readonly state: string
  readonly outcome: string | null
  readonly finishedAt: string | null
  readonly sequence: number
  readonly atMs: number
  /** The reader had seen the terminal event when it asked. */
  readonly afterTheEnd: boolean
}

/** A run of somebody else, or of nobody, as a user was shown it. */
export type Trespass = { readonly runId: string; readonly user: string; readonly status: number }

export type ReadFrame = { readonly id: number | null; readonly data: string }

export type Reading = {
  readonly runId: string
  readonly reader: string
  /** With a cursor of 0, or without one: then a prelude comes first. */
  readonly from: 'start' | 'prelude'
  readonly frames: ReadFrame[]
  connections: number
  ended: boolean
  /** What a reader itself saw to be wrong. */
  readonly complaints: string[]
}

export type Delivery = {
  readonly sink: string
  readonly eventId: string
  readonly runId: string
  readonly state: string
  readonly atMs: number
  readonly answered: number
  /** Its signature is one of Standard Webhooks by the secret that all know. */
  readonly signed: boolean
  /** The run's state in the database while the delivery waited for its answer; null: it could not be asked. */
  readonly found: string | null
}

/** One request at a scripted upstream. */
export type Asked = {
  readonly script: string
  readonly runId: string
  readonly epoch: number
  readonly idempotencyKey: string
  /** The user messages that came along. */
  readonly said: readonly string[]
  readonly atMs: number
  readonly closedAtMs: () => number | null
}

export type Histories = {
  readonly turns: Turn[]
  readonly cancels: Cancel[]
  readonly views: View[]
  readonly trespasses: Trespass[]
  readonly readings: Reading[]
  readonly deliveries: Delivery[]
  readonly asked: Asked[]
}

export function emptyHistories(): Histories {
  return {
    turns: [],
    cancels: [],
    views: [],
    trespasses: [],
    readings: [],
    deliveries: [],
    asked: [],
  }
}

export type StoredRun = {
  readonly runId: string
  readonly conversationId: string
  readonly user: string
  readonly turn: number
  readonly agent: string
  readonly state: string
  readonly outcome: string | null
  readonly errorCode: string | null
  readonly epoch: number
  readonly sequence: number
  readonly createdAtMs: number
  readonly startedAtMs: number | null
  readonly finishedAtMs: number | null
}

export type StoredEvent = {
  readonly sequence: number
  readonly epoch: number
  readonly json: string
  readonly event: AgUiEvent
  readonly atMs: number
}

export type StoredMessage = {
  readonly runId: string
  readonly status: string
  readonly message: Message
}

export type StoredAttempt = {
  readonly runId: string
  readonly epoch: number
  readonly runner: string
  readonly reason: string
  readonly outcome: string | null
  readonly startedAtMs: number
  readonly endedAtMs: number | null
}

export type StaleWrite = {
  readonly runId: string
  readonly epoch: number
  readonly currentEpoch: number
  readonly runner: string
  readonly operation: string
}

/** What the database holds when everything has ended. */
export type Stored = {
  readonly runs: ReadonlyMap<string, StoredRun>
  readonly logs: ReadonlyMap<string, readonly StoredEvent[]>
  /** By conversation, in the order of turns. */
  readonly messages: ReadonlyMap<string, readonly StoredMessage[]>
  /** By run, in the order of epochs. */
  readonly attempts: ReadonlyMap<string, readonly StoredAttempt[]>
  /** By user and client turn. */
  readonly turns: ReadonlyMap<string, string>
  /** Event ids by run. */
  readonly notifications: ReadonlyMap<string, readonly string[]>
  readonly staleWrites: readonly StaleWrite[]
  /** Whether this Holdfast delivers notifications, so that the sinks can be asked about them. */
  readonly notifies: boolean
}

/** Refused writes that a runner counted itself, by its boot id. */
export type Counted = { readonly runner: string; readonly staleWrites: number }

/** Something that must not be. */
export type Finding = {
  readonly invariant: string
  readonly runId: string | null
  readonly detail: string
}

export function turnKey(user: string, clientTurnId: string): string {
  return `${user}/${clientTurnId}`
}
