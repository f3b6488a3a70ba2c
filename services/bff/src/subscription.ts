import { comment, frame, retry } from '@holdfast/protocol'
import type { LogEvent } from '@holdfast/store'
import type { StreamConfig } from './config.ts'
import type { EventStream } from './event-stream.ts'
import { isTerminalEvent } from './event-window.ts'
import type { Follower } from './run-hub.ts'

export type Subscription = {
  /** The last sequence the client has. */
  readonly after: number
  readonly timing: Pick<StreamConfig, 'heartbeatMs' | 'maxAgeMs'>
  /** Asked at each heartbeat; false ends the stream. */
  stillAllowed(): Promise<boolean>
  /** Events were taken by the socket so long after the process heard of the newest. */
  delivered(ms: number): void
}

/** A pause that spreads a herd of reconnecting clients. */
export function retryWithJitter(): string {
  return retry(500 + Math.round(Math.random() * 2500))
}

/**
 * Sends the log from `after` on until its terminal event, or until the connection has to end for
 * another reason: then with a `retry:` and no terminal event, so that the client comes back.
 */
export async function sendLog(
  stream: EventStream,
  follower: Follower,
  { after, timing, stillAllowed, delivered }: Subscription,
): Promise<void> {
  const endsAtMs = performance.now() + timing.maxAgeMs * (0.9 + Math.random() * 0.2)
  let last = after
  let beatAtMs = performance.now() + timing.heartbeatMs

  while (!stream.signal.aborted && performance.now() < endsAtMs) {
    const waitMs = Math.min(beatAtMs, endsAtMs) - performance.now()
    const batch = await follower.next(last, waitMs, stream.signal)
    if (batch.kind === 'gone') break
    if (batch.kind === 'events') {
      const events = batch.events.filter((event) => event.sequence > last)
      if (!(await stream.write(framesOf(events)))) return
      if (batch.wokenAtMs !== undefined) delivered(performance.now() - batch.wokenAtMs)
      last = events.at(-1)?.sequence ?? last
      if (events.some(isTerminalEvent)) return
    }
    if (performance.now() >= beatAtMs) {
      if (!(await stillAllowed())) return
      if (!(await stream.write(comment('')))) return
      beatAtMs = performance.now() + timing.heartbeatMs
    }
  }
  await stream.write(retryWithJitter())
}

function framesOf(events: readonly LogEvent[]): string {
  return events.map((event) => frame(event.sequence, event.json)).join('')
}
