import { HoldfastError } from '@holdfast/std'
import { sql } from 'kysely'
import { inSnapshot, rows, type Store } from './store.ts'
import { QUERIES } from './violations.ts'

/** What asking about one invariant gave. */
export type Audited = { readonly invariant: string; readonly ms: number } & (
  | { readonly status: 'ok' }
  | { readonly status: 'violated'; readonly rows: readonly unknown[]; readonly more: boolean }
  /** The database could not say, because it took too long or was away. */
  | { readonly status: 'unknown'; readonly reason: string }
)

/**
 * Asks a live database about every invariant, one query after the other. Each has a read-only transaction and a time
 * limit of its own, so that no snapshot outlives a query; it takes no lock but that of reading, and waits for none.
 */
export async function* audit(
  store: Store,
  { queryMs, rowsMax }: { queryMs: number; rowsMax: number },
): AsyncGenerator<Audited> {
  for (const [invariant, query] of Object.entries(QUERIES)) {
    const askedAt = performance.now()
    const answer = await ask(store, query, queryMs, rowsMax).catch((error: unknown) => {
      if (error instanceof HoldfastError && error.kind === 'unavailable') return error
      throw error
    })
    const ms = Math.round(performance.now() - askedAt)
    if (answer instanceof HoldfastError) {
      const reason = answer.cause instanceof Error ? answer.cause.message : answer.message
      yield { invariant, ms, status: 'unknown', reason }
    } else if (answer.length === 0) {
      yield { invariant, ms, status: 'ok' }
    } else {
      const found = answer.slice(0, rowsMax)
      yield { invariant, ms, status: 'violated', rows: found, more: answer.length > rowsMax }
    }
  }
}

async function ask(store: Store, query: string, queryMs: number, rowsMax: number) {
  return await inSnapshot(store, async (db) => {
    await rows(db, sql`SET LOCAL statement_timeout = ${sql.lit(queryMs)}`)
    await rows(db, sql`SET LOCAL lock_timeout = 1000`)
    return await rows(db, sql<unknown>`${sql.raw(query)} LIMIT ${sql.lit(rowsMax + 1)}`)
  })
}
