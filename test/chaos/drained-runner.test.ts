// Goal: a runner that is told to end costs no run anything. Method: SIGTERM and SIGINT to real processes with runs in
// flight; an upstream that keeps the long ones long.
import pg from 'pg'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { request, send } from '../support/api.ts'
import { attach, checkAll, checkRun } from '../support/checker.ts'
import { type Holdfast, type Runner, startHoldfast } from '../support/holdfast.ts'
import { answer, opening, startUpstream, type Upstream } from '../support/upstream.ts'
import { cancel, frozen, outcomes, ownerOf, readRun, until } from './observe.ts'

let upstream: Upstream
let holdfast: Holdfast
/** Frozen while the one that is to leave claims; each test starts that one for itself. */
let staying: Runner

beforeAll(async () => {
  upstream = await startUpstream()
  holdfast = await startHoldfast({
    env: { LEASE_SECONDS: '10', DRAIN_SECONDS: '1' },
    agents: {
      default: 'demo',
      agents: { demo: { type: 'demo' }, remote: { type: 'ag-ui', url: upstream.url } },
    },
  })
  ;[staying] = holdfast.runners as [Runner]
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await upstream?.[Symbol.asyncDispose]()
})

async function begun(message: string, agent = 'demo'): Promise<string> {
  const { runId } = await send(holdfast.url, message, { agent })
  if (agent === 'remote') {
    const exchange = await upstream.exchange(upstream.exchanges.length)
    exchange.say(...opening(exchange, 'Half a sen'))
  }
  await attach(holdfast.url, runId).seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
  return runId
}

test('SIGTERM, also twice: short runs end, long ones are continued elsewhere at no cost', async () => {
  const leaving = await holdfast.startRunner()
  let short = ''
  let long = ''
  await frozen(staying, async () => {
    long = await begun('take your time', 'remote')
    short = await begun('be quick', 'remote')
    leaving.kill('SIGTERM')
    leaving.kill('SIGTERM')
    const last = await upstream.exchange(1)
    last.finish()
  })
  const stream = attach(holdfast.url, long)
  const [first, second] = [await upstream.exchange(0), await upstream.exchange(2)]
  // The next attempt asks only after the one before it has let go.
  expect(first.closedAt).not.toBeNull()
  answer(second, 'A whole sentence.')
  expect(await leaving.exited).toEqual({ code: 0, signal: null })
  const quick = await checkRun(holdfast.url, short)
  expect(quick.run.attempts).toMatchObject([{ runner: leaving.bootId, outcome: 'succeeded' }])
  const slow = await checkRun(holdfast.url, long)
  expect(slow.run).toMatchObject({ state: 'succeeded', epoch: 2, attemptsUsed: 1 })
  expect(outcomes(slow.run)).toEqual(['handed_back', 'succeeded'])
  expect(slow.run.attempts.map(({ runner }) => runner)).toEqual([leaving.bootId, staying.bootId])
  expect(slow.text).toBe('A whole sentence.')
  expect((await stream.held).messages.at(-1)).toMatchObject({ content: 'A whole sentence.' })
})

test('a cancel that races the hand-back wins, whichever of them comes first', async () => {
  const leaving = await holdfast.startRunner({ DRAIN_SECONDS: '0' })
  const runIds: string[] = []
  await frozen(staying, async () => {
    runIds.push(...(await Promise.all(Array.from({ length: 12 }, () => begun('/slow 8 a story')))))
    leaving.kill('SIGINT')
    const late = runIds.map((runId, at) =>
      leaving.exited.then(() => (at % 3 === 2 ? cancel(holdfast.url, runId) : undefined)),
    )
    // A third at the same moment as the signal, a third while it drains, a third when it is gone.
    const first = runIds.filter((_, at) => at % 3 === 0).map((id) => cancel(holdfast.url, id))
    await Promise.all(first)
    const next = runIds.filter((_, at) => at % 3 === 1).map((id) => cancel(holdfast.url, id))
    await Promise.all([...next, ...late])
    expect(await leaving.exited).toEqual({ code: 0, signal: null })
    // Nobody else was awake: each was ended by the one that left, or by the cancel itself.
    const states = await Promise.all(
      runIds.map(async (runId) => (await readRun(holdfast.url, runId)).state),
    )
    expect(new Set(states)).toEqual(new Set(['stopped']))
  })
  for (const runId of runIds) {
    const { run, messages } = await checkRun(holdfast.url, runId)
    expect(run).toMatchObject({ state: 'stopped', outcome: 'cancelled', epoch: 1 })
    expect(messages[1]).toMatchObject({ status: 'partial' })
  }
})

test('a hand-back that finds a cancel stops the run instead', async () => {
  const leaving = await holdfast.startRunner({ DRAIN_SECONDS: '0' })
  await using stack = new AsyncDisposableStack()
  const client = stack.adopt(new pg.Client({ connectionString: holdfast.databaseUrl }), (held) =>
    held.end(),
  )
  await client.connect()
  let runId = ''
  await frozen(staying, async () => {
    runId = await begun('/slow 8 a story')
    // The cancel's transaction, held open until the drain has begun: nobody can have seen its mark before.
    await client.query('BEGIN')
    await client.query('UPDATE holdfast.runs SET cancel_requested_at = now() WHERE id = $1', [
      runId,
    ])
    leaving.kill('SIGTERM')
    await until('the drain hands back', () => leaving.log().includes('handing runs back'))
    await client.query('COMMIT')
    expect(await leaving.exited).toEqual({ code: 0, signal: null })
    expect((await readRun(holdfast.url, runId)).state).toBe('stopped')
  })
  const { run } = await checkRun(holdfast.url, runId)
  expect(outcomes(run)).toEqual(['stopped'])
})

test('a run that is being claimed as the drain begins is handed back as well', async () => {
  const leaving = await holdfast.startRunner({ DRAIN_SECONDS: '0' })
  const runIds: string[] = []
  await frozen(staying, async () => {
    const sent = await Promise.all(
      Array.from({ length: 8 }, () => send(holdfast.url, '/slow 1 now')),
    )
    runIds.push(...sent.map(({ runId }) => runId))
    await ownerOf(holdfast, runIds[0] ?? '')
    leaving.kill('SIGTERM')
    expect(await leaving.exited).toEqual({ code: 0, signal: null })
  })
  for (const runId of runIds) {
    const { run } = await checkRun(holdfast.url, runId)
    expect(run).toMatchObject({ state: 'succeeded', attemptsUsed: 1 })
    expect(run.attempts.at(-1)?.runner).toBe(staying.bootId)
  }
})

test('all runners can be replaced, one after the other, under twenty runs: each of them succeeds', async () => {
  const other = await holdfast.startRunner()
  const runIds = await Promise.all(Array.from({ length: 20 }, () => begun('/slow 3 go on')))
  const streams = runIds.map((runId) => attach(holdfast.url, runId))
  for (const old of [staying, other]) {
    staying = await holdfast.startRunner()
    old.kill('SIGTERM')
    expect(await old.exited).toEqual({ code: 0, signal: null })
  }
  for (const [at, runId] of runIds.entries()) {
    const { run, text } = await checkRun(holdfast.url, runId)
    expect(run).toMatchObject({ state: 'succeeded', attemptsUsed: 1 })
    expect((await streams[at]?.held)?.messages.at(-1)?.content).toBe(text)
  }
  const { body } = await request(`${holdfast.url}/runners`)
  expect(body['runners']).toHaveLength(2)
})
