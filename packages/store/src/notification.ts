import type { DeliveryState } from '@holdfast/protocol'
import { type RawBuilder, sql } from 'kysely'
import { asCursor, fromCursor } from './cursor.ts'
import { inTransaction, row, rows, type Store } from './store.ts'

/** A notification and how far it got. Times are ISO 8601. */
export type NotificationView = {
  readonly eventId: string
  readonly type: string
  readonly runId: string
  readonly conversationId: string
  /** dead: an endpoint was given up; pending: one has not confirmed; delivered: all that had to be told have. */
  readonly state: DeliveryState
  readonly createdAt: string
  readonly deliveries: readonly {
    readonly endpoint: string
    readonly state: DeliveryState
    readonly attempts: number
    readonly nextAttemptAt: string | null
    readonly lastStatus: number | null
    readonly lastError: string | null
    readonly deliveredAt: string | null
  }[]
}

type NotificationRow = {
  event_id: string
  type: string
  run_id: string
  conversation_id: string
  state: DeliveryState
  created_at: Date
  deliveries: NotificationView['deliveries'] | null
}

/** Those of a tenant, newest first. Index: outbox_recent; by state deliveries_unfinished, and outbox_unexpanded. */
export async function listNotifications(
  store: Store,
  tenantId: string,
  filter: {
    readonly state?: DeliveryState | undefined
    readonly runId?: string | undefined
    readonly limit: number
    readonly cursor?: string | undefined
  },
): Promise<
  | { kind: 'page'; notifications: NotificationView[]; nextCursor: string | null }
  | { kind: 'bad_cursor' }
> {
  const before = fromCursor(filter.cursor)
  if (before === 'bad') return { kind: 'bad_cursor' }
  const conditions = [
    ...(filter.state === undefined ? [] : [inState(tenantId, filter.state)]),
    ...(filter.runId === undefined ? [] : [sql`o.run_id = ${filter.runId}`]),
    ...(before === null ? [] : [sql`o.event_id < ${before}`]),
  ]
  const found = await rows(store, select(tenantId, conditions, filter.limit + 1))
  const notifications = found.slice(0, filter.limit).map(asView)
  const last = notifications.at(-1)
  return {
    kind: 'page',
    notifications,
    nextCursor: found.length > filter.limit && last ? asCursor(last.eventId) : null,
  }
}

/**
 * Makes due at once what an operator does not want to wait for: deliveries that were given up, with the whole
 * schedule before them again, and those that wait for their next attempt. What was delivered, or is being sent now,
 * stays as it is. Locks: the notification's deliveries.
 * @returns `null`: unknown, foreign or deleted; these look the same
 */
export async function redriveNotification(
  store: Store,
  tenantId: string,
  eventId: string,
): Promise<{ redriven: number; notification: NotificationView } | null> {
  return await inTransaction(store, async (db) => {
    const one = () => row(db, select(tenantId, [sql`o.event_id = ${eventId}`], 1))
    if (!(await one())) return null
    const redriven = await rows(
      db,
      sql`UPDATE holdfast.deliveries
          SET redriven_after = CASE WHEN state = 'dead' THEN attempts ELSE redriven_after END,
              state = 'pending', next_attempt_at = clock_timestamp()
          WHERE event_id = ${eventId} AND (state = 'dead' OR (state = 'pending' AND relay IS NULL))
          RETURNING endpoint`,
    )
    const notification = await one()
    return notification && { redriven: redriven.length, notification: asView(notification) }
  })
}

/** For /metrics: how long the oldest that is due has been waiting, and how much has not arrived. */
export async function notificationFigures(
  store: Store,
): Promise<{ lagSeconds: number; pending: number; dead: number }> {
  const figures = await row(
    store,
    sql<{ lag: number | null; pending: number; dead: number }>`
      SELECT extract(epoch FROM clock_timestamp() - least(
          (SELECT min(created_at) FROM holdfast.outbox WHERE expanded_at IS NULL),
          (SELECT min(next_attempt_at) FROM holdfast.deliveries
           WHERE state = 'pending' AND next_attempt_at <= clock_timestamp()))) AS lag,
        (SELECT count(*) FROM holdfast.deliveries WHERE state = 'pending') AS pending,
        (SELECT count(*) FROM holdfast.deliveries WHERE state = 'dead') AS dead`,
  )
  return {
    lagSeconds: Number(figures?.lag ?? 0),
    pending: figures?.pending ?? 0,
    dead: figures?.dead ?? 0,
  }
}

function select(tenantId: string, conditions: RawBuilder<unknown>[], limit: number) {
  const all = [sql`o.tenant_id = ${tenantId}`, ...conditions]
  return sql<NotificationRow>`
    SELECT o.event_id, o.type, o.run_id, r.conversation_id, o.created_at, d.deliveries,
      CASE WHEN d.dead THEN 'dead' WHEN d.pending OR o.expanded_at IS NULL THEN 'pending' ELSE 'delivered' END AS state
    FROM holdfast.outbox o
    JOIN holdfast.runs r ON r.id = o.run_id
    JOIN holdfast.conversations c ON c.id = r.conversation_id AND c.deleted_at IS NULL
    CROSS JOIN LATERAL (
      SELECT bool_or(x.state = 'dead') AS dead, bool_or(x.state = 'pending') AS pending,
        json_agg(json_build_object('endpoint', x.endpoint, 'state', x.state, 'attempts', x.attempts,
          'nextAttemptAt', x.next_attempt_at, 'lastStatus', x.last_status, 'lastError', x.last_error,
          'deliveredAt', x.delivered_at) ORDER BY x.endpoint) AS deliveries
      FROM holdfast.deliveries x WHERE x.event_id = o.event_id) d
    WHERE ${sql.join(all, sql` AND `)} ORDER BY o.event_id DESC LIMIT ${limit}`
}

function inState(tenantId: string, state: DeliveryState): RawBuilder<unknown> {
  const having = (which: DeliveryState) => sql`
    SELECT x.event_id FROM holdfast.deliveries x WHERE x.tenant_id = ${tenantId} AND x.state = ${which}`
  if (state === 'dead') return sql`o.event_id IN (${having('dead')})`
  const notDead = sql`d.dead IS NOT TRUE`
  if (state === 'delivered') {
    return sql`o.expanded_at IS NOT NULL AND d.pending IS NOT TRUE AND ${notDead}`
  }
  // One list of both: an OR would look through all notifications that there ever were.
  return sql`o.event_id IN (${having('pending')}
    UNION ALL SELECT u.event_id FROM holdfast.outbox u WHERE u.expanded_at IS NULL) AND ${notDead}`
}

function asView(found: NotificationRow): NotificationView {
  return {
    eventId: found.event_id,
    type: found.type,
    runId: found.run_id,
    conversationId: found.conversation_id,
    state: found.state,
    createdAt: found.created_at.toISOString(),
    deliveries: (found.deliveries ?? []).map((delivery) => ({
      ...delivery,
      nextAttemptAt: asIso(delivery.nextAttemptAt),
      deliveredAt: asIso(delivery.deliveredAt),
    })),
  }
}

function asIso(time: string | null): string | null {
  return time && new Date(time).toISOString()
}
