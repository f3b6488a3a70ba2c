import { createHash } from 'node:crypto'
import type { PostgresCursor, PostgresPool, PostgresPoolClient, PostgresQueryResult } from 'kysely'
import type pg from 'pg'

export type AnsweredClient = PostgresPoolClient & {
  /** A statement that is prepared on the connection under its name, where names are kept. */
  prepared<R extends pg.QueryResultRow>(statement: {
    name: string
    text: string
    values: unknown[]
  }): Promise<R[]>
}

export type AnsweredPool = Omit<PostgresPool, 'connect'> & { connect(): Promise<AnsweredClient> }

/**
 * Connections that answer. One that did not in time (`query_timeout`) may still do so, or its other end is gone
 * without a word: nothing more is sent on it, and it does not return to the pool. As a network that loses one
 * connection has mostly lost them all, neither do those that are older than this. And one that breaks while it
 * is in use says so as an event as well, which would end the process if nobody listened: from its first moment, since
 * the word that it is ready and the word that it is over may come in one packet.
 * @param pooled behind a transaction pooler, where what is prepared on one connection is asked of another: nothing has a
 *   name there
 */
export function answeredPool(
  pool: pg.Pool,
  { pooled = false }: { pooled?: boolean | undefined } = {},
): AnsweredPool {
  const lives = new WeakMap<pg.PoolClient, Life>()
  let era = 0
  pool.on('connect', (client) => {
    const life: Life = { era, broken: undefined }
    lives.set(client, life)
    client.on('error', (error) => {
      life.broken ??= error
    })
  })

  async function connect(): Promise<AnsweredClient> {
    for (;;) {
      const client = await pool.connect()
      const life = lives.get(client)
      if (life?.era === era && !life.broken)
        return answeredClient(client, life, pooled, () => (era += 1))
      client.release(true)
    }
  }
  return { connect, end: () => pool.end(), options: {} }
}

type Life = { readonly era: number; broken: Error | undefined }

function answeredClient(
  client: pg.PoolClient,
  life: Life,
  pooled: boolean,
  onUnanswered: () => void,
): AnsweredClient {
  async function ask<R extends pg.QueryResultRow>(query: pg.QueryConfig) {
    if (life.broken) throw life.broken
    try {
      return await client.query<R>(query)
    } catch (error) {
      if (isUnanswered(error) && !life.broken) {
        life.broken = error
        onUnanswered()
      }
      throw error
    }
  }
  async function plain<R>(text: string, values: readonly unknown[]) {
    const { command, rowCount, rows } = await ask({
      ...(pooled ? { text } : named(text)),
      values: [...values],
    })
    return { command, rowCount: rowCount ?? 0, rows } as PostgresQueryResult<R>
  }
  function query<R>(text: string, values: readonly unknown[]): Promise<PostgresQueryResult<R>>
  function query<R>(cursor: PostgresCursor<R>): PostgresCursor<R>
  function query<R>(
    text: string | PostgresCursor<R>,
    values: readonly unknown[] = [],
  ): Promise<PostgresQueryResult<R>> | PostgresCursor<R> {
    if (typeof text !== 'string') throw new Error('no statement of ours is read by a cursor')
    return plain<R>(text, values)
  }
  return {
    query,
    async prepared<R extends pg.QueryResultRow>({
      name,
      text,
      values,
    }: {
      name: string
      text: string
      values: unknown[]
    }) {
      return (await ask<R>({ text, values, ...(pooled ? {} : { name }) })).rows
    },
    release(discard = false) {
      client.release(life.broken ?? discard)
    },
  }
}

/** In a text whose best plan depends on how much it is asked for: it is planned each time. */
export const PLANNED_ANEW = '/* planned anew */'

/** Far more texts than there are statements of ours; one that is put together anew each time must not fill the server. */
const NAMES_MAX = 500
const names = new Map<string, string>()

/** A text that comes again is parsed and planned once a connection: half of what a short statement costs the server. */
function named(text: string): { text: string; name?: string } {
  const known = names.get(text)
  if (known !== undefined) return { text, name: known }
  if (names.size >= NAMES_MAX || !text.includes('$1') || text.includes(PLANNED_ANEW))
    return { text }
  const name = `holdfast_${createHash('sha256').update(text).digest('hex').slice(0, 16)}`
  names.set(text, name)
  return { text, name }
}

/** The driver says it by words alone. */
function isUnanswered(error: unknown): error is Error {
  return error instanceof Error && error.message === 'Query read timeout'
}
