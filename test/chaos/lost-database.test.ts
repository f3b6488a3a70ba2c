// Goal: a database, or the network to it, that goes away costs time and nothing else; and nobody goes on without a
// lease. Method: pg_terminate_backend, a read-only database, and a TCP proxy that loses everything, or only replies.
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, expect, inject, test } from 'vitest'
import { request, send } from '../support/api.ts'
import { attach, checkAll, checkRun } from '../support/checker.ts'
import { type DatabaseProxy, openDatabaseProxy } from '../support/database-proxy.ts'
import { type Holdfast, type Runner, startHoldfast } from '../support/holdfast.ts'
import { connect } from '../support/sql.ts'
import { answer, opening, startUpstream, type Upstream } from '../support/upstream.ts'
import { outcomes, until } from './observe.ts'

const LEASE_MS = 4000

let upstream: Upstream
let proxy: DatabaseProxy
let holdfast: Holdfast
/** Reaches the database through the proxy. */
let distant: Runner

beforeAll(async () => {
  upstream = await startUpstream()
  proxy = await openDatabaseProxy(inject('adminUrl'))
  holdfast = await startHoldfast({
    runners: 0,
    env: { LEASE_SECONDS: `${LEASE_MS / 1000}` },
    agents: {
      default: 'demo',
      agents: { demo: { type: 'demo' }, remote: { type: 'ag-ui', url: upstream.url } },
    },
  })
  distant = await holdfast.startRunner({ DATABASE_URL: proxy.through(holdfast.databaseUrl) })
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await proxy?.[Symbol.asyncDispose]()
  await upstream?.[Symbol.asyncDispose]()
})

/** Runs in the middle of their answers. */
async function begin(count: number, message: string): Promise<string[]> {
  const sent = await Promise.all(Array.from({ length: count }, () => send(holdfast.url, message)))
  await Promise.all(
    sent.map(({ runId }) =>
      attach(holdfast.url, runId).seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT'),
    ),
  )
  return sent.map(({ runId }) => runId)
}

/**
 * All succeed in their first attempt, no word is missing or said twice, and no write of theirs was taken for a stale
 * one.
 */
async function expectUnharmed(runIds: readonly string[]) {
  // A session that has just been cut may be found dead by the next request.
  const turn = { json: { message: 'the same words', clientTurnId: randomUUID() } }
  const runId = await until('turns are accepted', async () => {
    const { status, body } = await request(`${holdfast.url}/runs`, turn)
    return status < 300 && String(body['runId'])
  })
  const { text } = await checkRun(holdfast.url, runId)
  for (const id of runIds) {
    const checked = await checkRun(holdfast.url, id)
    expect(outcomes(checked.run)).toEqual(['succeeded'])
    expect(checked.run).toMatchObject({ epoch: 1, attemptsUsed: 1 })
    expect(checked.text).toBe(text)
  }
  await using sql = await connect(holdfast.databaseUrl)
  expect(
    await sql('SELECT * FROM holdfast.stale_writes WHERE run_id = ANY ($1)', [runIds]),
  ).toEqual([])
}

/** Statements from outside the database, which must be fenced by nothing that the tests do to it. */
async function admin(...statements: string[]) {
  const client = new pg.Client({ connectionString: inject('adminUrl') })
  await client.connect()
  try {
    for (const statement of statements) await client.query(statement)
  } finally {
    await client.end()
  }
}

function databaseName(): string {
  return new URL(holdfast.databaseUrl).pathname.slice(1)
}

function cutAllSessions(): string {
  return `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '${databaseName()}'`
}

test('all sessions of the database can be cut, again and again, under load', async () => {
  const runIds = await begin(10, '/slow 3 the same words')
  for (let cut = 0; cut < 4; cut += 1) {
    await admin(cutAllSessions())
    await sleep(400)
  }
  await expectUnharmed(runIds)
})

test('a database that takes no writes for a while is waited for', async () => {
  // Some end while nothing can be written, some later.
  const runIds = [
    ...(await begin(3, '/slow 3 the same words')),
    ...(await begin(3, '/slow 1 the same words')),
  ]
  const name = databaseName()
  await admin(`ALTER DATABASE ${name} SET default_transaction_read_only = on`, cutAllSessions())
  await until(
    'reading works again',
    async () => (await request(`${holdfast.url}/runs`)).status === 200,
  )
  const refused = await request(`${holdfast.url}/runs`, {
    json: { message: 'now?', clientTurnId: 'read-only' },
  })
  expect(refused.status).toBe(503)
  await sleep(1500)
  await admin(`ALTER DATABASE ${name} RESET default_transaction_read_only`, cutAllSessions())
  await expectUnharmed(runIds)
})

test('a reply that is lost after the commit is decided by asking, and no event is doubled', async () => {
  const appends = await begin(6, '/slow 2 the same words')
  await proxy.loseReplies('holdfast_append', 6)
  await expectUnharmed(appends)
  const commits = await begin(6, '/slow 1 the same words')
  // The runs end about now, each in a transaction of its own.
  await proxy.loseReplies('commit', 6)
  await expectUnharmed(commits)
})

test('a network that loses everything for less than the lease takes no run from its owner', async () => {
  const runIds = await begin(5, '/slow 4 the same words')
  proxy.blackhole()
  await sleep(1200)
  proxy.restore()
  await expectUnharmed(runIds)
})

test('sessions that die without a word are given up, and their runs go on', async () => {
  const runIds = await begin(5, '/slow 4 the same words')
  proxy.forget()
  await expectUnharmed(runIds)
})

test('a runner that cannot reach the database stops itself before its lease ends, and comes back', async () => {
  const { runId } = await send(holdfast.url, 'speak', { agent: 'remote' })
  const first = await upstream.exchange(0)
  first.say(...opening(first, 'As long as I may. '))
  await attach(holdfast.url, runId).seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
  const goneAt = performance.now()
  proxy.blackhole()
  // The lease was renewed at the latest when the network went, so it ends by then.
  expect((await first.closed) - goneAt).toBeLessThan(LEASE_MS)
  await sleep(Math.max(0, LEASE_MS - (performance.now() - goneAt)))
  proxy.restore()
  const second = await upstream.exchange(1)
  answer(second, 'Once more.')
  const { run, text } = await checkRun(holdfast.url, runId)
  // A claim that hung in the network may have been granted when it was too old to be used: one more attempt.
  expect(outcomes(run).at(-1)).toBe('succeeded')
  expect(new Set(outcomes(run).slice(0, -1))).toEqual(new Set(['lost']))
  expect(new Set(run.attempts.map(({ runner }) => runner))).toEqual(new Set([distant.bootId]))
  expect(text).toBe('Once more.')
})
