import { frame, retry } from '@holdfast/protocol'
import type { LogEvent, Principal } from '@holdfast/store'
import { readHead } from '@holdfast/store'
import type { Bff } from './bff.ts'
import type { EventStream } from './event-stream.ts'
import { isTerminalEvent } from './event-window.ts'
import type { Follower } from './run-hub.ts'

export type Subscription = {
  readonly runId: string
  readonly principal: Principal
  /** The last sequence the client has. */
  readonly after: number
  /** When the token ends (ms since 1970), if it does. */
  readonly expiresAtMs: number | undefined
}

/** A first pause that spreads a herd of reconnecting clients. */
export function retryWithJitter(): string {
  return retry(500 + Math.round(Math.random() * 2500))
}

/**
 * Sends the log from `after` on until its terminal event, or until the connection has to end for
 * another reason: then with a `retry:` and no terminal event, so that the client comes back.
 */
export async function sendLog(
  bff: Bff,
  stream: EventStream,
  follower: Follower,
  subscription: Subscription,
): Promise<void> {
  const { heartbeatMs, maxAgeMs } = bff.config.streams
  const endsAtMs = performance.now() + maxAgeMs * (0.9 + Math.random() * 0.2)
  let last = subscription.after
  let beatAtMs = performance.now() + heartbeatMs

  while (!stream.signal.aborted && performance.now() < endsAtMs) {
    const batch = await follower.next(last, beatAtMs - performance.now(), stream.signal)
    if (batch.kind === 'gone') break
    if (batch.kind === 'events') {
      const events = batch.events.filter((event) => event.sequence > last)
      if (!(await stream.write(framesOf(events)))) return
      if (batch.wokenAtMs !== undefined) bff.metrics.delivered(performance.now() - batch.wokenAtMs)
      last = events.at(-1)?.sequence ?? last
      if (events.some(isTerminalEvent)) return
    }
    if (performance.now() >= beatAtMs) {
      if (!(await stillAllowed(bff, subscription))) return
      if (!(await stream.write(HEARTBEAT))) return
      beatAtMs = performance.now() + heartbeatMs
    }
  }
  await stream.write(retryWithJitter())
}

const HEARTBEAT = ':\n\n'

function framesOf(events: readonly LogEvent[]): string {
  return events.map((event) => frame(event.sequence, event.json)).join('')
}

/** False when the run was deleted or the token ended. A database that is away decides nothing. */
async function stillAllowed(bff: Bff, { runId, principal, expiresAtMs }: Subscription) {
  if (expiresAtMs !== undefined && Date.now() >= expiresAtMs) return false
  try {
    return (await bff.hub.reads(() => readHead(bff.store, principal, runId))) !== null
  } catch (error) {
    bff.log.warn({ err: error, runId }, 'a subscription could not be re-authorised')
    return true
  }
}
