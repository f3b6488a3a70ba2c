import pg from 'pg'

/** A connection of the test's own, for looking into the database as an outsider would. */
export type Sql = AsyncDisposable & {
  /** The rows of one statement. */
  <R = Record<string, unknown>>(text: string, values?: unknown[]): Promise<R[]>
}

export async function connect(databaseUrl: string): Promise<Sql> {
  const client = new pg.Client({ connectionString: databaseUrl, application_name: 'test' })
  await client.connect()
  async function query<R>(text: string, values?: unknown[]): Promise<R[]> {
    return (await client.query(text, values)).rows as R[]
  }
  return Object.assign(query, { [Symbol.asyncDispose]: () => client.end() })
}
