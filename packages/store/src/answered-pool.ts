import type { PostgresCursor, PostgresPool, PostgresPoolClient, PostgresQueryResult } from 'kysely'
import type pg from 'pg'

/**
 * What the query builder takes its connections from. On a connection that did not answer in time an answer
 * may still come, or the other end is gone without a word: nothing more is sent on it, and it does not
 * return to the pool.
 */
export function answeredPool(pool: pg.Pool): PostgresPool {
  return {
    connect: async () => answeredClient(await pool.connect()),
    end: () => pool.end(),
    options: {},
  }
}

function answeredClient(client: pg.PoolClient): PostgresPoolClient {
  let silent: Error | undefined

  async function ask<R>(text: string, values: readonly unknown[]): Promise<PostgresQueryResult<R>> {
    if (silent) throw silent
    try {
      const { command, rowCount, rows } = await client.query(text, [...values])
      return {
        command: command as PostgresQueryResult<R>['command'],
        rowCount: rowCount ?? 0,
        rows,
      }
    } catch (error) {
      if (isUnanswered(error)) silent = error
      throw error
    }
  }
  function query<R>(text: string, values: readonly unknown[]): Promise<PostgresQueryResult<R>>
  function query<R>(cursor: PostgresCursor<R>): PostgresCursor<R>
  function query<R>(
    text: string | PostgresCursor<R>,
    values: readonly unknown[] = [],
  ): Promise<PostgresQueryResult<R>> | PostgresCursor<R> {
    if (typeof text !== 'string') throw new Error('no statement of ours is read by a cursor')
    return ask<R>(text, values)
  }
  return { query, release: (discard) => client.release(silent ?? discard ?? false) }
}

/** The driver's own limit passed (`query_timeout`); it says so by words alone. */
function isUnanswered(error: unknown): error is Error {
  return error instanceof Error && error.message === 'Query read timeout'
}
