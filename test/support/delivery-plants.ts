/** The notification of the run that a plant calls `$1`. */
export const EVENT_OF_RUN = '(SELECT event_id FROM holdfast.outbox WHERE run_id = $1)'

/** [the beginning of an invariant's name, what takes away the wall before it]. */
export const DELIVERY_WALLS: readonly [invariant: string, statement: string][] = [
  [
    'I17 a delivery is due',
    'ALTER TABLE holdfast.deliveries DROP CONSTRAINT deliveries_due_while_pending',
  ],
  [
    'I17 no relay holds',
    'ALTER TABLE holdfast.deliveries DROP CONSTRAINT deliveries_held_while_pending',
  ],
  [
    'I17 a delivery that was confirmed',
    'ALTER TABLE holdfast.deliveries DROP CONSTRAINT deliveries_delivered_at',
  ],
]

/** Violations of what is true of deliveries; the ended run has one that was confirmed and one that is pending. */
export const DELIVERY_PLANTS: readonly [
  invariant: string,
  of: 'ended' | 'stray',
  statement: string,
][] = [
  [
    'I17 a delivery has its notification, whose endpoints were decided',
    'stray',
    `INSERT INTO holdfast.deliveries (event_id, endpoint, tenant_id, origin, configured, next_attempt_at)
     VALUES ($1, 'https://a.test/', 'acme', 'https://a.test', true, now())`,
  ],
  [
    'I17 a delivery has its notification, whose endpoints were decided',
    'ended',
    `UPDATE holdfast.outbox SET expanded_at = NULL WHERE run_id = $1`,
  ],
  [
    'I17 a delivery is due exactly while it is pending',
    'ended',
    `UPDATE holdfast.deliveries SET next_attempt_at = NULL WHERE event_id = ${EVENT_OF_RUN} AND state = 'pending'`,
  ],
  [
    'I17 a delivery is due exactly while it is pending',
    'ended',
    `UPDATE holdfast.deliveries SET next_attempt_at = now() WHERE event_id = ${EVENT_OF_RUN} AND state = 'delivered'`,
  ],
  [
    'I17 no relay holds a delivery that is settled',
    'ended',
    `UPDATE holdfast.deliveries SET relay = gen_random_uuid() WHERE event_id = ${EVENT_OF_RUN} AND state = 'delivered'`,
  ],
  [
    'I17 a delivery that was confirmed says when, and no other does',
    'ended',
    `UPDATE holdfast.deliveries SET delivered_at = NULL WHERE event_id = ${EVENT_OF_RUN} AND state = 'delivered'`,
  ],
  [
    'I17 no delivery is settled or held without an attempt',
    'ended',
    `UPDATE holdfast.deliveries SET attempts = 0 WHERE event_id = ${EVENT_OF_RUN} AND state = 'delivered'`,
  ],
  [
    'I20 a notification and its deliveries belong to the tenant of the run',
    'ended',
    `UPDATE holdfast.deliveries SET tenant_id = 'other' WHERE event_id = ${EVENT_OF_RUN} AND state = 'delivered'`,
  ],
]
