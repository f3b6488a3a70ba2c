import { isIP } from 'node:net'
import { asError, backoffMs, type Loop, loop, wait, within } from '@holdfast/std'
import {
  type ClaimedDelivery,
  claimDeliveries,
  type DeliveryResult,
  expandNotifications,
  recordDelivery,
  type Store,
} from '@holdfast/store'
import type { Logger } from 'pino'
import { bareAddress, type Outbound } from '../agents/outbound.ts'
import type { RunnerConfig } from '../config.ts'
import { elapsedMs, type Instant, now } from '../instant.ts'
import type { RunnerMetrics } from '../metrics.ts'
import type { Probes } from '../probes.ts'
import { ATTEMPT_MS, type PostOutcome, postNotification } from './post-notification.ts'
import { retryDelayMs } from './retry-schedule.ts'

export type Relay = Loop & {
  /** Claims nothing more; what is in flight gets so long (at most an attempt's time), then it is cut and given back. */
  drain(ms: number): Promise<void>
}

const LOOK_EVERY_MS = 1000
const EXPAND_AT_ONCE = 200
/** An attempt, and what recording it may take. */
const LEASE_MS = 2 * ATTEMPT_MS
/** Those that hang must leave room: for the others of their host, and for other hosts. */
const SLOTS = { perEndpoint: 4, perOrigin: 16, total: 256 }

type Parts = {
  probes: Probes
  store: Store
  bootId: string
  config: Pick<RunnerConfig, 'notifications' | 'outboundAllow' | 'openMode'>
  metrics: Pick<RunnerMetrics, 'deliveryAttempts' | 'terminalToDeliverySeconds'>
  log: Logger
}

/**
 * Tells endpoints of ended runs. Every runner has one; a delivery is sent by the one that claimed it, and by another
 * when that one is not heard of until its lease ends.
 */
export function relay(parts: Parts): Relay {
  const { store, log } = parts
  const { webhookUrls, key } = parts.config.notifications
  const inFlight = new Map<ClaimedDelivery, Promise<void>>()
  const cutting = new AbortController()

  function start(delivery: ClaimedDelivery, claimedAt: Instant) {
    const sending = deliver(parts, delivery, claimedAt, cutting.signal)
      .catch((error: unknown) => {
        const { eventId, origin } = delivery
        log.warn({ err: error, eventId, origin }, 'a delivery could not be recorded')
      })
      .finally(() => {
        inFlight.delete(delivery)
        looking.wake()
      })
    inFlight.set(delivery, sending)
  }

  const looking = loop({
    name: 'relay',
    everyMs: LOOK_EVERY_MS,
    onError: (error) => log.warn({ err: error }, 'the relay could not look'),
    async round(signal) {
      while ((await expandNotifications(store, webhookUrls, EXPAND_AT_ONCE)) === EXPAND_AT_ONCE) {
        if (signal.aborted) return
      }
      while (!signal.aborted) {
        const claimedAt = now()
        const claimed = await claimDeliveries(store, {
          relay: parts.bootId,
          leaseMs: LEASE_MS,
          canSign: key !== null,
          slots: SLOTS,
          inFlight: [...inFlight.keys()],
        })
        for (const delivery of claimed) start(delivery, claimedAt)
        if (claimed.length === 0) return
      }
    },
  })

  async function drain(ms: number) {
    await looking.stop()
    const all = () => Promise.all(inFlight.values())
    await within(Math.min(ms, ATTEMPT_MS), all())
    cutting.abort(new Error('the relay is draining'))
    await all()
  }

  return { ...looking, drain, stop: () => drain(0) }
}

async function deliver(
  parts: Parts,
  delivery: ClaimedDelivery,
  claimedAt: Instant,
  cut: AbortSignal,
): Promise<void> {
  // Frozen behind its claim: by the end of an attempt somebody else would be sending it.
  if (elapsedMs(claimedAt) > LEASE_MS - ATTEMPT_MS) return
  const { eventId: id, body, endpoint } = delivery
  let outcome: PostOutcome | 'cut'
  try {
    const { notifications } = parts.config
    const outbound = outboundFor(endpoint, parts.config)
    outcome = await postNotification({ id, body, endpoint }, notifications.key, outbound, cut)
  } catch (error) {
    if (!cut.aborted) throw error
    outcome = 'cut'
  }
  if (outcome !== 'cut' && outcome.kind === 'confirmed') {
    await parts.probes.beforeConfirmation?.(delivery)
  }
  await record(parts, delivery, resultOf(outcome, delivery), claimedAt, cut)
}

/** An address that the operator wrote into WEBHOOK_URLS or NOTIFY_ALLOW, unlike a name, leads nowhere else. */
function outboundFor(endpoint: string, config: Parts['config']): Outbound {
  const { webhookUrls, notifyAllow } = config.notifications
  const { hostname } = new URL(endpoint)
  const isAddress = isIP(bareAddress(hostname)) !== 0 || hostname === 'localhost'
  const isNamed =
    webhookUrls.some((url) => new URL(url).hostname === hostname) ||
    notifyAllow.some((host) => host.replace(/:\d+$/, '') === hostname)
  const named = isAddress && isNamed ? [bareAddress(hostname)] : []
  return { allow: [...config.outboundAllow, ...named], openMode: config.openMode }
}

function resultOf(outcome: PostOutcome | 'cut', { step }: ClaimedDelivery): DeliveryResult {
  if (outcome === 'cut') {
    return { kind: 'failed', status: null, error: 'cut by a drain', retryInMs: 0 }
  }
  const { status } = outcome
  if (outcome.kind === 'confirmed') return { kind: 'delivered', status: outcome.status }
  const retryInMs = outcome.final ? null : retryDelayMs(step, outcome.retryAfterMs)
  return { kind: 'failed', status, error: outcome.error, retryInMs }
}

/** Tried again until the lease or the relay ends: what is not recorded is sent again. */
async function record(
  { store, metrics, log }: Parts,
  delivery: ClaimedDelivery,
  result: DeliveryResult,
  claimedAt: Instant,
  cut: AbortSignal,
): Promise<void> {
  for (let tries = 0; ; tries += 1) {
    try {
      const recorded = await recordDelivery(store, delivery, result)
      const dead = result.kind === 'failed' && result.retryInMs === null
      metrics.deliveryAttempts.inc({ outcome: dead ? 'dead' : result.kind })
      if (recorded && result.kind === 'delivered') {
        metrics.terminalToDeliverySeconds.observe(recorded.terminalToDeliveryMs / 1000)
      } else if (result.kind === 'failed') {
        // Only the origin: the rest of a webhook's URL is often its password.
        const { eventId, origin, attempts } = delivery
        log.warn({ eventId, origin, attempts, ...result }, 'an endpoint did not confirm')
      }
      return
    } catch (error) {
      if (cut.aborted || elapsedMs(claimedAt) > LEASE_MS) throw asError(error)
      await wait(backoffMs(tries, { baseMs: 50, capMs: 1000 }))
    }
  }
}
