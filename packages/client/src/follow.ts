import { type AgUiEvent, EventType, parseCursor } from '@holdfast/protocol'
import { backoffMs, HoldfastError } from '@holdfast/std'
import { failureOf } from './failure.ts'
import { pause } from './pause.ts'
import { type Frame, readFrames } from './read-frames.ts'

/** `sequence` is null for what a prelude holds before its last event. */
export type Followed = { sequence: number | null; event: AgUiEvent }

export type FollowOptions = {
  /** The caller's own headers, asked for before each connection. If this fails, so does all. */
  headers(): Promise<Readonly<Record<string, string>>>
  /** GETs the run's events with these headers. If this fails, it is tried again. */
  get(headers: Record<string, string>, signal: AbortSignal): Promise<Response>
  /** The sequence up to which the caller has all events; without it a prelude comes first. */
  after?: number
  /** A connection without a byte for so long is taken for dead; the service speaks every 10 s. */
  idleTimeoutMs: number
  signal: AbortSignal
}

const RETRY_MS = 1000
const BACKOFF_MS_MAX = 30_000
/** Refusals that say nothing about the run, only about the moment. */
const TEMPORARY = new Set([408, 425, 429])

type Connection = { cursor: number | null; retryMs: number; failures: number }

/**
 * A run's events in batches, each event once and in order, over as many connections as it takes;
 * ends after the terminal event.
 * @throws HoldfastError for a refusal that waiting does not change (`not_found`, `cursor_gone`,
 * `cursor_ahead`, ...), and the signal's reason when it aborts
 */
export async function* followBatches(
  options: FollowOptions,
): AsyncGenerator<Followed[], void, undefined> {
  const connection: Connection = { cursor: options.after ?? null, retryMs: RETRY_MS, failures: 0 }
  for (;;) {
    options.signal.throwIfAborted()
    const ended = yield* oneConnection(options, connection)
    if (ended) return
    await pause(reconnectMs(connection), options.signal)
  }
}

/** Never before the time that the service asked for, and never all readers at once. */
function reconnectMs({ retryMs, failures }: Connection): number {
  const capMs = Math.max(BACKOFF_MS_MAX, retryMs)
  const spreadMs = backoffMs(failures, { baseMs: retryMs / 2, capMs })
  return retryMs + spreadMs
}

/** True when there is nothing more to come; false when the connection should be made again. */
async function* oneConnection(
  options: FollowOptions,
  connection: Connection,
): AsyncGenerator<Followed[], boolean, undefined> {
  const headers = { ...(await options.headers()), ...headersFor(connection) }
  const ending = new AbortController()
  const signal = AbortSignal.any([options.signal, ending.signal])
  let idle = setTimeout(() => ending.abort(), options.idleTimeoutMs)
  const onByte = () => {
    clearTimeout(idle)
    idle = setTimeout(() => ending.abort(), options.idleTimeoutMs)
  }
  const onRetry = (ms: number) => {
    connection.retryMs = ms
  }
  connection.failures += 1
  try {
    const response = await options.get(headers, signal)
    if (response.status === 204) return true
    const body = await eventsOf(response, onRetry)
    if (!body) return false
    return yield* deliver(readFrames(body, { onByte, onRetry }), connection)
  } catch (error) {
    if (error instanceof HoldfastError) throw error
    return false
  } finally {
    clearTimeout(idle)
    ending.abort()
  }
}

function headersFor({ cursor }: Connection): Record<string, string> {
  const accept = { accept: 'text/event-stream' }
  return cursor === null ? accept : { ...accept, 'last-event-id': String(cursor) }
}

/** The response's body, or null where it only says that now is a bad time. */
async function eventsOf(
  response: Response,
  onRetry: (ms: number) => void,
): Promise<ReadableStream<Uint8Array> | null> {
  if (response.status >= 500 || TEMPORARY.has(response.status)) {
    const afterSeconds = Number(response.headers.get('retry-after') ?? Number.NaN)
    if (afterSeconds > 0) onRetry(afterSeconds * 1000)
    return null
  }
  if (!response.ok) throw await failureOf(response)
  const type = response.headers.get('content-type') ?? 'nothing'
  if (!response.body || !type.startsWith('text/event-stream')) {
    throw new HoldfastError('internal', 'unexpected_answer', `Expected events and got ${type}.`)
  }
  return response.body
}

/**
 * Holds frames without an id back until one with an id completes them: a prelude that is cut in
 * the middle must leave no trace, because the next connection begins with a whole one.
 */
async function* deliver(
  batches: AsyncIterable<Frame[]>,
  connection: Connection,
): AsyncGenerator<Followed[], boolean, undefined> {
  let held: Followed[] = []
  for await (const frames of batches) {
    const batch: Followed[] = []
    for (const frame of frames) {
      const followed = followedOf(frame)
      held.push(followed)
      if (followed.sequence === null) continue
      if (connection.cursor === null || followed.sequence > connection.cursor) {
        batch.push(...held)
        connection.cursor = followed.sequence
      }
      held = []
    }
    if (batch.length === 0) continue
    connection.failures = 0
    yield batch
    if (batch.some(({ event }) => isTerminal(event))) return true
  }
  return false
}

function followedOf(frame: Frame): Followed {
  const sequence = frame.id === undefined ? null : parseCursor(frame.id)
  if (frame.id !== undefined && sequence === null) throw malformed(`the id ${frame.id}`)
  return { sequence, event: eventOf(frame.data) }
}

function eventOf(data: string): AgUiEvent {
  try {
    return JSON.parse(data) as AgUiEvent
  } catch (cause) {
    throw malformed('data that is not JSON', cause)
  }
}

function malformed(what: string, cause?: unknown): HoldfastError {
  return new HoldfastError('internal', 'malformed_event', `The service sent ${what}.`, { cause })
}

function isTerminal(event: AgUiEvent): boolean {
  return event.type === EventType.RUN_FINISHED || event.type === EventType.RUN_ERROR
}
