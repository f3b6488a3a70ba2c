import { sql } from 'kysely'
import { keepSession } from './kept-session.ts'
import { rows, type Store } from './store.ts'

/**
 * A runner's life as the database sees it: a session that holds an advisory lock under its boot id. A killed process
 * closes its sockets, so the lock is gone long before its leases are.
 */
export type Presence = AsyncDisposable

/** Holds the session for as long as it is wanted; when it is cut, takes it again at once. */
export function holdPresence(options: {
  /** A direct session: through a transaction pooler the lock would be somebody else's. */
  databaseUrl: string
  bootId: string
  applicationName: string
  onError: (error: Error) => void
}): Presence {
  return keepSession({
    ...options,
    async setUp(client) {
      await client.query('SELECT pg_advisory_lock($1)', [lockKeyOf(options.bootId)])
    },
  })
}

export type OwnersSeen = {
  /** Changes when the server restarts: then every session was cut, and absence means nothing. */
  readonly serverStartedAt: string
  /** How long the server has been up by its own clock. */
  readonly upMs: number
  readonly present: readonly string[]
  readonly absent: readonly string[]
}

/** Which of the registered runners have their session now. Reads the list of runners and of locks, nothing else. */
export async function lookForOwners(store: Store): Promise<OwnersSeen> {
  const found = await rows(
    store,
    sql<{ started_at: string; up_ms: number; boot_id: string | null; present: boolean }>`
      SELECT pg_postmaster_start_time()::text AS started_at,
        extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000 AS up_ms, r.boot_id,
        EXISTS (SELECT FROM pg_locks l
                WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
                  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND ((l.classid::bigint << 32) | l.objid::bigint) = ${lockKeyIn(sql`r.boot_id`)}) AS present
      FROM (SELECT 1) AS once LEFT JOIN holdfast.runners r ON true`,
  )
  const owners = found.flatMap(({ boot_id, present }) => (boot_id ? [{ boot_id, present }] : []))
  return {
    serverStartedAt: found[0]?.started_at ?? '',
    upMs: Number(found[0]?.up_ms ?? 0),
    present: owners.filter((owner) => owner.present).map((owner) => owner.boot_id),
    absent: owners.filter((owner) => !owner.present).map((owner) => owner.boot_id),
  }
}

/**
 * Ends the leases of an owner that is gone, so that its runs are taken over as if they had passed. If it lives
 * all the same, behind a broken network, its next renewal or write is refused. Locks: those rows, SKIP LOCKED.
 * @returns how many leases were ended
 */
export async function endLeasesOf(store: Store, owner: string): Promise<number> {
  const ended = await rows(
    store,
    sql`UPDATE holdfast.runs SET lease_until = clock_timestamp()
        WHERE id = ANY (ARRAY(
            SELECT id FROM holdfast.runs
            WHERE state = 'running' AND owner = ${owner}::uuid AND lease_until > clock_timestamp()
            FOR NO KEY UPDATE SKIP LOCKED))
          AND state = 'running' AND owner = ${owner}::uuid
        RETURNING id`,
  )
  return ended.length
}

/** The random half of the boot id, cut to 63 bits: positive, so that the two halves of a lock's key add up. */
function lockKeyOf(bootId: string): string {
  return BigInt.asUintN(63, BigInt(`0x${bootId.replaceAll('-', '').slice(16)}`)).toString()
}

function lockKeyIn(bootId: ReturnType<typeof sql>) {
  return sql`(('x' || substr(replace(${bootId}::text, '-', ''), 17, 16))::bit(64)::bigint & 9223372036854775807)`
}
