import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { inject } from 'vitest'

/** A database of one's own, migrated and empty. Disposing drops it, whoever is still connected. */
export type TestDatabase = AsyncDisposable & { readonly url: string }

/** Clones the run's template, which takes some ten milliseconds. */
export async function createDatabase(): Promise<TestDatabase> {
  const adminUrl = inject('adminUrl')
  const name = `holdfast_test_${randomBytes(6).toString('hex')}`
  await admin(adminUrl, `CREATE DATABASE ${name} TEMPLATE ${inject('templateDatabase')}`)
  const url = new URL(adminUrl)
  url.pathname = `/${name}`
  return {
    url: url.href,
    async [Symbol.asyncDispose]() {
      await admin(adminUrl, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`)
    },
  }
}

async function admin(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}
