// Goal: an operator can ask a live database whether the invariants hold, and scripts understand the answer. Method: the
// real command on a database with a violation planted in it, on one that is held up, on a wrong one and on none.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { openStore, VIOLATION_QUERIES } from '@holdfast/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { accept, claimOne, finish, recordAgents } from '../support/by-hand.ts'
import { createDatabase, type TestDatabase } from '../support/database.ts'
import { connect, type Sql } from '../support/sql.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const HELD = 'I17 no run is notified that has not ended'

let database: TestDatabase
let sql: Sql
let runId: string

beforeAll(async () => {
  database = await createDatabase()
  sql = await connect(database.url)
  await using store = openStore({ databaseUrl: database.url, applicationName: 'test', poolMax: 2 })
  await recordAgents(store)
  await accept(store)
  const { lease } = await claimOne(store)
  runId = lease.runId
  await finish(store, lease)
})

afterAll(async () => {
  await sql[Symbol.asyncDispose]()
  await database[Symbol.asyncDispose]()
})

async function audit(args: readonly string[] = [], databaseUrl = database.url) {
  const child = spawn(
    process.execPath,
    ['--conditions=holdfast-source', 'services/audit/src/main.ts', ...args],
    { cwd: ROOT, env: { DATABASE_URL: databaseUrl }, stdio: ['ignore', 'pipe', 'pipe'] },
  )
  const output = Promise.all([text(child.stdout), text(child.stderr)])
  const [code] = await once(child, 'exit')
  const [out, err] = await output
  return { code, out, err }
}

test('a healthy database is said to be so, invariant by invariant', async () => {
  const { code, out, err } = await audit()
  const lines = out.trimEnd().split('\n')
  const asked = Object.keys(VIOLATION_QUERIES)
  expect([code, err]).toEqual([0, ''])
  expect(lines.pop()).toBe(`${asked.length} asked, 0 violated, 0 not known`)
  expect(lines.map((line) => line.replace(/^ok {8}(.*) \(\d+ ms\)$/, '$1'))).toEqual(asked)
})

test('a violation is told with its rows, to people and to programs, and nothing is changed', async () => {
  const [kept] = await sql('DELETE FROM holdfast.outbox RETURNING *')
  const words = await audit()
  expect(words.code).toBe(1)
  expect(words.out).toMatch(
    /^VIOLATED {2}I17 every ended run .*\n {10}\{"id":"[^"]+","state":"succeeded"\}$/m,
  )
  const { code, out } = await audit(['--json'])
  const report = JSON.parse(out)
  expect([code, report.ok, report.violated, report.unknown]).toEqual([1, false, 1, 0])
  expect(report.invariants).toContainEqual({
    invariant: 'I17 every ended run of a conversation that is there has one notification',
    ms: expect.any(Number),
    status: 'violated',
    rows: [{ id: runId, state: 'succeeded' }],
    more: false,
  })
  const row = JSON.stringify(kept)
  await sql(
    `INSERT INTO holdfast.outbox SELECT * FROM json_populate_record(NULL::holdfast.outbox, $1)`,
    [row],
  )
  expect((await audit()).code).toBe(0)
})

test('more rows than are wanted are cut, and it is said that there are more', async () => {
  await sql('BEGIN')
  await sql('SET LOCAL session_replication_role = replica')
  await sql(
    `INSERT INTO holdfast.run_events (run_id, sequence, epoch, tenant_id, type, payload)
             SELECT $1, n, 1, 'acme', 'CUSTOM', '{}' FROM generate_series(100, 130) AS n`,
    [runId],
  )
  await sql(`UPDATE holdfast.run_events SET epoch = 7 WHERE sequence >= 100`)
  await sql('COMMIT')
  const { code, out } = await audit(['--rows', '3'])
  expect(code).toBe(1)
  expect(out).toMatch(
    /^VIOLATED {2}I1 no event carries [^\n]*\n( {10}\{[^\n]*\}\n){3} {10}and more$/m,
  )
  await sql('DELETE FROM holdfast.run_events WHERE sequence >= 100')
})

test('what the database cannot say in time is not known, and the rest is asked all the same', async () => {
  await sql('BEGIN')
  await sql('LOCK TABLE holdfast.outbox IN ACCESS EXCLUSIVE MODE')
  const { code, out } = await audit()
  await sql('ROLLBACK')
  expect(code).toBe(2)
  expect(out).toContain(`NOT KNOWN ${HELD}`)
  expect(out).toContain('ok        I18 ')
  expect(out).toMatch(/ 0 violated, [1-9]\d* not known\n$/)
})

test('a database that is away, or of another schema, and wrong arguments are one clear line', async () => {
  const nowhere = new URL(database.url)
  nowhere.port = '1'
  const away = await audit([], nowhere.href)
  expect([away.code, away.out]).toEqual([2, ''])
  expect(away.err).toMatch(
    /^holdfast audit: The database does not answer in time\. \([^\n]*ECONNREFUSED[^\n]*\)\n$/,
  )
  await sql(`UPDATE holdfast.schema_migrations SET number = number + 1000`)
  const newer = await audit()
  await sql(`UPDATE holdfast.schema_migrations SET number = number - 1000`)
  expect([newer.code, newer.out]).toEqual([2, ''])
  expect(newer.err).toMatch(/^holdfast audit: the database's schema is \w+: [^\n]*\n$/)
  const stranger = new URL(database.url)
  stranger.password = 'wrong'
  const missing = new URL(database.url)
  missing.pathname = '/nowhere'
  for (const url of [stranger, missing]) {
    const refused = await audit([], url.href)
    expect([refused.code, refused.out]).toEqual([2, ''])
    expect(refused.err).toMatch(/^holdfast audit: [^\n]*(authentication failed|not exist)[^\n]*\n$/)
  }
  for (const [args, url] of [
    [['--fast'], database.url],
    [['--rows', '0'], database.url],
    [['--timeout', 'x'], database.url],
    [[], 'mysql://somewhere'],
    [[], ''],
  ] as const) {
    const wrong = await audit(args, url)
    expect([wrong.code, wrong.out, wrong.err.split('\n').length]).toEqual([2, '', 2])
  }
})

test('a schema that lacks any migration is none to ask, be it not the newest', async () => {
  const [kept] = await sql(
    `DELETE FROM holdfast.schema_migrations WHERE number = 2 RETURNING to_json(schema_migrations) AS it`,
  )
  const { code, err } = await audit()
  await sql(
    `INSERT INTO holdfast.schema_migrations
     SELECT * FROM json_populate_record(NULL::holdfast.schema_migrations, $1)`,
    [JSON.stringify(kept?.['it'])],
  )
  expect([code, err]).toEqual([2, expect.stringMatching(/schema is behind: [^\n]*\n$/)])
})

test('every query of the runbook can be asked as it stands', async () => {
  const runbook = await readFile(join(ROOT, 'docs/runbook.md'), 'utf8')
  const block = /```sql\n([\s\S]*?)```/.exec(runbook)?.[1] ?? ''
  const queries = block.split(/;\n/).filter((query) => query.trim() !== '')
  expect(queries.length).toBeGreaterThan(5)
  for (const query of queries) await sql(query)
})
