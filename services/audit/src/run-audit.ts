import { asError, HoldfastError } from '@holdfast/std'
import { type Audited, audit, openStore, type Store, schemaStatus } from '@holdfast/store'
import { type AuditConfig, parseConfig } from './config.ts'

/** The exit status: 0 all invariants hold, 1 some do not, 2 it is not known. */
type Status = 0 | 1 | 2

/**
 * Asks a live database about every invariant and prints what it says. Reads only, so it may be run beside everything
 * else, and at any time.
 */
export async function runAudit(
  environment: Readonly<Record<string, string | undefined>>,
  args: readonly string[],
): Promise<Status> {
  try {
    const config = parseConfig(environment, args)
    await using store = openStore({
      databaseUrl: config.databaseUrl,
      applicationName: 'holdfast audit',
      poolMax: 1,
      statementMs: config.queryMs,
      idleInTransactionMs: 10_000,
    })
    await refuseOtherSchema(store)
    return await report(store, config)
  } catch (error) {
    // Left to the runtime, a bug would end as 1, which says that an invariant is violated.
    if (!(error instanceof HoldfastError)) {
      process.stderr.write(`holdfast audit: ${asError(error).stack}\n`)
      return 2
    }
    const cause = error.cause instanceof Error ? ` (${reason(error.cause)})` : ''
    process.stderr.write(`holdfast audit: ${error.message}${cause}\n`)
    return 2
  }
}

async function refuseOtherSchema(store: Store): Promise<void> {
  const status = await schemaStatus(store)
  if (status === 'current') return
  const what = `the database's schema is ${status}: this audit knows only the schema of its own version`
  throw new HoldfastError('conflict', 'other_schema', what)
}

async function report(store: Store, config: AuditConfig): Promise<Status> {
  const audited: Audited[] = []
  for await (const one of audit(store, config)) {
    audited.push(one)
    if (!config.json) print(inWords(one))
  }
  const violated = audited.filter(({ status }) => status === 'violated').length
  const unknown = audited.filter(({ status }) => status === 'unknown').length
  if (config.json) {
    print(JSON.stringify({ ok: violated + unknown === 0, violated, unknown, invariants: audited }))
  } else {
    print(`${audited.length} asked, ${violated} violated, ${unknown} not known`)
  }
  if (violated > 0) return 1
  return unknown > 0 ? 2 : 0
}

function inWords(one: Audited): string {
  switch (one.status) {
    case 'ok':
      return `ok        ${one.invariant} (${one.ms} ms)`
    case 'unknown':
      return `NOT KNOWN ${one.invariant} (${one.ms} ms): ${one.reason}`
    case 'violated': {
      const rows = one.rows.map((row) => `          ${JSON.stringify(row)}`)
      if (one.more) rows.push('          and more')
      return [`VIOLATED  ${one.invariant} (${one.ms} ms)`, ...rows].join('\n')
    }
  }
}

/** A refused connection to several addresses says what it is in its parts only. */
function reason(cause: Error): string {
  const first: unknown = cause instanceof AggregateError ? cause.errors[0] : cause
  return first instanceof Error ? first.message : cause.message
}

function print(line: string): void {
  process.stdout.write(`${line}\n`)
}
