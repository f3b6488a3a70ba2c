import type { PostgresPool, PostgresPoolClient } from 'kysely'
import type pg from 'pg'

/**
 * What the query builder takes its connections from. On a connection that did not answer in time an answer
 * may still come, or the other end is gone without a word: nothing more is sent on it, and it does not
 * return to the pool.
 */
export function answeredPool(pool: pg.Pool): PostgresPool {
  async function connect(): Promise<PostgresPoolClient> {
    const client = await pool.connect()
    let silent: Error | undefined
    async function query(text: unknown, values?: unknown) {
      if (silent) throw silent
      try {
        return await client.query(text as string, values as unknown[])
      } catch (error) {
        if (isUnanswered(error)) silent = error
        throw error
      }
    }
    return {
      query: query as PostgresPoolClient['query'],
      release: (discard) => client.release(silent ?? discard ?? false),
    }
  }
  return { connect, end: () => pool.end(), options: {} }
}

/** The driver's own limit passed (`query_timeout`); it says so by words alone. */
export function isUnanswered(error: unknown): error is Error {
  return error instanceof Error && error.message === 'Query read timeout'
}
