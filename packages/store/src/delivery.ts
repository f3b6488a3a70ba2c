import { sql } from 'kysely'
import { row, rows, type Store } from './store.ts'

/** One notification that this relay may now send to one endpoint. */
export type ClaimedDelivery = {
  readonly eventId: string
  readonly endpoint: string
  readonly origin: string
  /** An endpoint of the configuration, which is owed a signature. */
  readonly configured: boolean
  readonly relay: string
  /** With `relay` the fencing token: every claim counts one more. */
  readonly attempts: number
  /** Which attempt of the schedule this is, from 1; a redrive begins anew. */
  readonly step: number
  /** The body, the same bytes at every attempt. */
  readonly body: string
}

/** How many a relay may have in flight, so that what hangs leaves room for what does not. */
export type DeliverySlots = {
  readonly perEndpoint: number
  readonly perOrigin: number
  readonly total: number
}

/**
 * Decides for notifications that are new which endpoints are told: the run's own and those that this runner, or any
 * other that is there, is configured with. Guarantees: each is decided once, and an endpoint stands once for each.
 * Locks: the picked outbox rows, SKIP LOCKED. Index: outbox_unexpanded.
 * @returns how many were decided
 */
export async function expandNotifications(
  store: Store,
  webhookUrls: readonly string[],
  limit: number,
): Promise<number> {
  const decided = await row(
    store,
    sql<{ count: number }>`
      WITH fresh AS (
        UPDATE holdfast.outbox SET expanded_at = clock_timestamp()
        WHERE event_id = ANY (ARRAY(
            SELECT event_id FROM holdfast.outbox WHERE expanded_at IS NULL
            ORDER BY created_at LIMIT ${limit} FOR NO KEY UPDATE SKIP LOCKED))
          AND expanded_at IS NULL
        RETURNING event_id, tenant_id, notify_url, created_at),
      endpoints AS (
        SELECT url FROM unnest(${webhookUrls}::text[]) AS own (url)
        UNION SELECT unnest(webhook_urls) FROM holdfast.runners),
      told AS (
        INSERT INTO holdfast.deliveries (event_id, endpoint, tenant_id, origin, configured, next_attempt_at)
        SELECT event_id, url, tenant_id, coalesce(substring(url FROM '^https?://[^/?#]+'), url),
          bool_or(configured), created_at
        FROM (SELECT event_id, tenant_id, url, true AS configured, created_at FROM fresh, endpoints
              UNION ALL SELECT event_id, tenant_id, notify_url, false, created_at FROM fresh) AS each
        -- No index could hold a longer one, and one row must not keep all others from being told.
        WHERE octet_length(url) <= 2500
        GROUP BY event_id, url, tenant_id, created_at)
      SELECT count(*) AS count FROM fresh`,
  )
  return decided?.count ?? 0
}

type ClaimedRow = {
  event_id: string
  endpoint: string
  origin: string
  configured: boolean
  attempts: number
  step: number
  body: string
}

/**
 * Claims deliveries that are due, as far as there are slots: the oldest of each origin, every origin in turn.
 * Guarantees: one relay sends a delivery until its lease ends, because the claim itself makes it due only then; what
 * has waited longest at one endpoint takes nothing from another. Locks: the picked rows, SKIP LOCKED.
 * Index: deliveries_due, from origin to origin, so what is not due costs nothing. The clock is asked in a subquery:
 * a volatile function is no condition for an index.
 */
export async function claimDeliveries(
  store: Store,
  request: {
    readonly relay: string
    readonly leaseMs: number
    /** Without a secret only what owes no signature. */
    readonly canSign: boolean
    readonly slots: DeliverySlots
    readonly inFlight: readonly { readonly endpoint: string; readonly origin: string }[]
  },
): Promise<ClaimedDelivery[]> {
  const { relay, slots, inFlight } = request
  const full = fullEndpoints(inFlight, slots.perEndpoint)
  const claimed = await rows(
    store,
    sql<ClaimedRow>`
      WITH RECURSIVE origins (origin) AS (
        (SELECT origin FROM holdfast.deliveries WHERE state = 'pending' ORDER BY origin LIMIT 1)
        UNION ALL
        SELECT (SELECT d.origin FROM holdfast.deliveries d
                WHERE d.state = 'pending' AND d.origin > origins.origin ORDER BY d.origin LIMIT 1)
        FROM origins WHERE origins.origin IS NOT NULL),
      busy AS (
        SELECT origin, endpoint
        FROM unnest(${inFlight.map(({ origin }) => origin)}::text[], ${inFlight.map(({ endpoint }) => endpoint)}::text[])
          AS b (origin, endpoint)),
      lanes AS (
        SELECT origin, greatest(0, ${slots.perOrigin} - (SELECT count(*) FROM busy b WHERE b.origin = o.origin)) AS free
        FROM origins o WHERE origin IS NOT NULL),
      due AS MATERIALIZED (
        SELECT d.* FROM lanes CROSS JOIN LATERAL (
          SELECT event_id, endpoint, origin, next_attempt_at FROM holdfast.deliveries x
          WHERE x.state = 'pending' AND x.origin = lanes.origin
            AND x.next_attempt_at <= (SELECT clock_timestamp())
            AND x.endpoint <> ALL (${full}::text[]) AND (${request.canSign} OR NOT x.configured)
          ORDER BY x.next_attempt_at LIMIT lanes.free
          FOR NO KEY UPDATE SKIP LOCKED) d),
      ranked AS (
        SELECT event_id, endpoint,
          row_number() OVER (PARTITION BY origin ORDER BY next_attempt_at) AS nth_of_origin,
          row_number() OVER (PARTITION BY endpoint ORDER BY next_attempt_at)
            + (SELECT count(*) FROM busy b WHERE b.endpoint = due.endpoint) AS nth_of_endpoint
        FROM due),
      picked AS (
        SELECT event_id, endpoint FROM ranked WHERE nth_of_endpoint <= ${slots.perEndpoint}
        ORDER BY nth_of_origin LIMIT ${Math.max(0, slots.total - inFlight.length)}),
      claimed AS (
        UPDATE holdfast.deliveries d
        SET attempts = attempts + 1, relay = ${relay}::uuid,
            next_attempt_at = clock_timestamp() + ${request.leaseMs} * interval '1 ms'
        FROM picked
        WHERE d.event_id = picked.event_id AND d.endpoint = picked.endpoint
          AND d.state = 'pending' AND d.next_attempt_at <= clock_timestamp()
        RETURNING d.event_id, d.endpoint, d.origin, d.configured, d.attempts, d.attempts - d.redriven_after AS step)
      SELECT c.*, o.payload::text AS body FROM claimed c JOIN holdfast.outbox o ON o.event_id = c.event_id`,
  )
  return claimed.map((delivery) => ({
    eventId: delivery.event_id,
    endpoint: delivery.endpoint,
    origin: delivery.origin,
    configured: delivery.configured,
    relay,
    attempts: delivery.attempts,
    step: delivery.step,
    body: delivery.body,
  }))
}

function fullEndpoints(
  inFlight: readonly { readonly endpoint: string }[],
  perEndpoint: number,
): string[] {
  const counts = new Map<string, number>()
  for (const { endpoint } of inFlight) counts.set(endpoint, (counts.get(endpoint) ?? 0) + 1)
  return [...counts].flatMap(([endpoint, count]) => (count >= perEndpoint ? [endpoint] : []))
}

/** What came of an attempt. `status`: what the endpoint answered, if it did. */
export type DeliveryResult =
  | { readonly kind: 'delivered'; readonly status: number }
  | {
      readonly kind: 'failed'
      readonly status: number | null
      /** Our own words. */
      readonly error: string
      /** `null`: it is given up. */
      readonly retryInMs: number | null
    }

/**
 * Records what came of an attempt, if it is still this relay's: another claim, or a redrive, came first otherwise.
 * Locks: the one row, by its primary key.
 * @returns for a delivered one, how long after the run's end; `null` when it was not ours any more
 */
export async function recordDelivery(
  store: Store,
  delivery: ClaimedDelivery,
  result: DeliveryResult,
): Promise<{ terminalToDeliveryMs: number } | null> {
  const delivered = result.kind === 'delivered'
  const retryInMs = delivered ? null : result.retryInMs
  const state = delivered ? 'delivered' : retryInMs === null ? 'dead' : 'pending'
  const recorded = await row(
    store,
    sql<{ ms: number }>`
      UPDATE holdfast.deliveries d
      SET state = ${state}, relay = NULL, last_status = ${result.status},
          last_error = ${delivered ? null : result.error},
          next_attempt_at = clock_timestamp() + ${retryInMs}::float8 * interval '1 ms',
          delivered_at = CASE WHEN ${delivered} THEN clock_timestamp() END
      FROM holdfast.outbox o
      WHERE d.event_id = ${delivery.eventId} AND d.endpoint = ${delivery.endpoint} AND o.event_id = d.event_id
        AND d.state = 'pending' AND d.relay = ${delivery.relay} AND d.attempts = ${delivery.attempts}
      RETURNING extract(epoch FROM clock_timestamp() - o.created_at) * 1000 AS ms`,
  )
  return recorded && { terminalToDeliveryMs: Number(recorded.ms) }
}

/**
 * Forgets deliveries that were confirmed so long ago. Their notification stays as long as its run, so that nobody
 * is told twice; what is dead stays to be redriven. Index: deliveries_delivered.
 */
export async function pruneDelivered(
  store: Store,
  olderThanMs: number,
  limit: number,
): Promise<void> {
  await rows(
    store,
    sql`DELETE FROM holdfast.deliveries WHERE (event_id, endpoint) IN (
          SELECT event_id, endpoint FROM holdfast.deliveries WHERE state = 'delivered'
            AND delivered_at < (SELECT clock_timestamp()) - ${olderThanMs} * interval '1 ms' LIMIT ${limit})`,
  )
}
