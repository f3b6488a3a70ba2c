import { Kysely, PostgresDialect, type RawBuilder, sql, type Transaction } from 'kysely'
import pg from 'pg'
import { v7 } from 'uuid'
import { type AnsweredPool, answeredPool } from './answered-pool.ts'
import { translate } from './pg-error.ts'

/** The tables are described by their statements, not by a schema type. */
export type Tables = Record<never, never>
/** What a statement runs on: the pool, or the transaction that it is part of. */
export type Db = Kysely<Tables> | Transaction<Tables>

const secret: unique symbol = Symbol('store')

type Inside = {
  db: Kysely<Tables>
  pool: AnsweredPool
  /** Milliseconds that the database's clock is ahead of this process's. */
  clockOffsetMs: number
}

/** The database as this process sees it. Opaque: only this package can reach what is inside. */
export type Store = AsyncDisposable & { readonly [secret]: Inside }

export type StoreOptions = {
  databaseUrl: string
  applicationName: string
  poolMax: number
  /** Time limits in the database, for every connection. Off where a transaction pooler would lose them. */
  statementMs?: number
  lockMs?: number
  idleInTransactionMs?: number
  /** Set when `databaseUrl` is a transaction pooler: limits then belong to the role. */
  pooled?: boolean
  onPoolError?: (error: Error) => void
}

const INT8_OID = 20
const NUMERIC_OID = 1700

/** Opens a pool; connects lazily, so that a database that is away does not fail the start. */
export function openStore(options: StoreOptions): Store {
  const statementMs = options.statementMs ?? 5000
  const connections = new pg.Pool({
    connectionString: options.databaseUrl,
    application_name: options.applicationName,
    max: options.poolMax,
    // A network that loses everything gives no error either: so the driver waits, a little longer than the database.
    query_timeout: Math.round(statementMs * 1.2),
    connectionTimeoutMillis: Math.max(1000, Math.min(statementMs, 5000)),
    idleTimeoutMillis: 30_000,
    keepAlive: true,
    ...(options.pooled
      ? {}
      : {
          statement_timeout: statementMs,
          lock_timeout: options.lockMs ?? 1000,
          idle_in_transaction_session_timeout: options.idleInTransactionMs ?? 5000,
        }),
    types: { getTypeParser },
  })
  connections.on('error', (error) => options.onPoolError?.(error))
  const pool = answeredPool(connections, options)
  const db = new Kysely<Tables>({ dialect: new PostgresDialect({ pool }) })
  return {
    [secret]: { db, pool, clockOffsetMs: 0 },
    async [Symbol.asyncDispose]() {
      await db.destroy()
      // Kysely ends only a pool that it has used itself; prepared statements go past it.
      if (!connections.ended) await connections.end()
    },
  }
}

// Counts, sequences and epochs stay far below 2^53, so numbers are enough and JSON can carry them.
function getTypeParser(oid: number, format?: string) {
  if (oid === INT8_OID || oid === NUMERIC_OID) return (text: string) => Number(text)
  return pg.types.getTypeParser(oid, format as 'text')
}

/** A new UUIDv7. Its time is the database's, because ids decide which partition holds a run's log. */
export function newId(store: Store): string {
  return v7({ msecs: Date.now() + store[secret].clockOffsetMs })
}

/** Measures how far the database's clock is from ours; to be repeated now and then. */
export async function syncClock(store: Store): Promise<void> {
  const inside = store[secret]
  const sentAt = Date.now()
  const now = await row(
    store,
    sql<{ now_ms: number }>`SELECT extract(epoch FROM clock_timestamp()) * 1000 AS now_ms`,
  )
  const receivedAt = Date.now()
  if (now) inside.clockOffsetMs = Math.round(Number(now.now_ms) - (sentAt + receivedAt) / 2)
}

/** Runs one statement by itself and returns its rows. */
export async function rows<R>(on: Store | Db, statement: RawBuilder<R>): Promise<R[]> {
  try {
    const result = await statement.execute(isStore(on) ? on[secret].db : on)
    return result.rows
  } catch (error) {
    throw translate(error)
  }
}

/** Like `rows`, for a statement that gives at most one row. */
export async function row<R>(on: Store | Db, statement: RawBuilder<R>): Promise<R | null> {
  return (await rows(on, statement))[0] ?? null
}

/** A read-write transaction (READ COMMITTED). Whatever `body` throws rolls it back and comes out. */
export async function inTransaction<T>(store: Store, body: (tx: Db) => Promise<T>): Promise<T> {
  try {
    return await store[secret].db.transaction().execute(body)
  } catch (error) {
    throw translate(error)
  }
}

/** Several reads of one and the same moment. */
export async function inSnapshot<T>(store: Store, body: (tx: Db) => Promise<T>): Promise<T> {
  try {
    return await store[secret].db
      .transaction()
      .setIsolationLevel('repeatable read')
      .setAccessMode('read only')
      .execute(body)
  } catch (error) {
    throw translate(error)
  }
}

/** A statement compiled once and prepared on each connection under `name`, for the hot paths. */
export async function prepared<R extends pg.QueryResultRow>(
  store: Store,
  name: string,
  text: string,
  values: unknown[],
): Promise<R[]> {
  try {
    const client = await store[secret].pool.connect()
    try {
      return await client.prepared<R>({ name, text, values })
    } finally {
      client.release()
    }
  } catch (error) {
    throw translate(error)
  }
}

function isStore(on: Store | Db): on is Store {
  return secret in on
}
