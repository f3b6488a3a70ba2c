// Goal: whoever asks why a run is not further is told what it waits for, in words and in facts. Method: one BFF and
// no runner but those that the test makes up: runners and claims by hand, so that each condition stays as it is.
import { randomUUID } from 'node:crypto'
import { emptyFold } from '@holdfast/protocol'
import {
  cancelRun,
  claimQueued,
  listRunners,
  registerRunner,
  releaseRun,
  touchRunner,
} from '@holdfast/store'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { request, send } from '../support/api.ts'
import { finish, recordAgents } from '../support/by-hand.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { connect, type Sql } from '../support/sql.ts'

let holdfast: Holdfast
let sql: Sql

beforeAll(async () => {
  // The runners made up here have no process, and what they leave open is looked at on purpose.
  holdfast = await startHoldfast({ runners: 0 })
  sql = await connect(holdfast.databaseUrl)
  await recordAgents(holdfast.store)
})

afterEach(() => sql('DELETE FROM holdfast.runners'))

afterAll(async () => {
  await sql?.[Symbol.asyncDispose]()
  await holdfast?.[Symbol.asyncDispose]()
})

async function why(runId: string) {
  const { status, body } = await request(`${holdfast.url}/runs/${runId}/why`)
  expect([status, body['runId']]).toEqual([200, runId])
  return body as { state: string; why: string; reasons: Record<string, unknown>[] }
}

async function runner(capacity = 1): Promise<string> {
  const bootId = randomUUID()
  const record = { bootId, name: 'hand', pid: 1, agents: ['demo'], capacity, metricsUrl: null }
  await registerRunner(holdfast.store, record, [])
  return bootId
}

async function claimed(runId: string, owner: string, leaseMs = 600_000) {
  const all = await claimQueued(holdfast.store, { owner, agents: ['demo'], leaseMs, limit: 50 })
  const found = all.find(({ lease }) => lease.runId === runId)
  if (!found) throw new Error(`${runId} was not due`)
  return found
}

test('a run that nobody takes names what is wrong with the runners', async () => {
  await sql('DELETE FROM holdfast.runners')
  const { runId } = await send(holdfast.url, 'hello')
  expect(await why(runId)).toMatchObject({
    state: 'queued',
    why: 'No runner has agent demo.',
    reasons: [{ code: 'no_runner', agent: 'demo' }],
  })
  const full = await runner()
  await touchRunner(holdfast.store, full, { running: 1, draining: false })
  const draining = await runner()
  await touchRunner(holdfast.store, draining, { running: 0, draining: true })
  const silent = await runner()
  await sql(
    `UPDATE holdfast.runners SET last_seen = now() - interval '1 minute' WHERE boot_id = $1`,
    [silent],
  )
  expect(await why(runId)).toMatchObject({
    why: 'No runner with agent demo can take it: 1 full, 1 draining, 1 silent.',
    reasons: [{ code: 'runners_unavailable', full: 1, draining: 1, silent: 1 }],
  })
  await runner()
  expect(await why(runId)).toMatchObject({ reasons: [{ code: 'due' }] })
  expect(await listRunners(holdfast.store)).toHaveLength(4)
  await cancelIt(runId)
})

test('a parked turn names the one before it, and the one that the conversation is at', async () => {
  const first = await send(holdfast.url, 'one')
  const { conversationId } = first
  const second = await send(holdfast.url, 'two', { conversationId, onActive: 'enqueue' })
  const third = await send(holdfast.url, 'three', { conversationId, onActive: 'enqueue' })
  expect(await why(second.runId)).toMatchObject({
    why: `It is parked behind run ${first.runId} (turn 1).`,
  })
  const { why: words, reasons } = await why(third.runId)
  expect(words).toContain(
    `behind run ${second.runId} (turn 2); the conversation is at run ${first.runId}`,
  )
  expect(reasons).toEqual([
    { code: 'parked', behindRunId: second.runId, behindTurn: 2, activeRunId: first.runId },
  ])
  for (const { runId } of [third, second, first]) await cancelIt(runId)
})

test('a run that backs off says until when, and what ended says how', async () => {
  const owner = await runner()
  const { runId } = await send(holdfast.url, 'hello')
  const { lease } = await claimed(runId, owner)
  const nothing = { closers: [], fold: emptyFold() }
  await releaseRun(holdfast.store, lease, 1, { command: 'retry', delayMs: 600_000, ...nothing })
  const { why: words, reasons } = await why(runId)
  expect(reasons).toMatchObject([{ code: 'backing_off' }])
  expect(words).toBe(`It is backing off until ${String(reasons[0]?.['until'])}.`)
  await cancelIt(runId)
  expect(await why(runId)).toMatchObject({
    state: 'stopped',
    reasons: [{ code: 'ended', state: 'stopped', outcome: 'cancelled', errorCode: null }],
  })
})

test('an executing run names its runner and its lease, and a silent runner and a cancel first', async () => {
  const owner = await runner()
  const { runId } = await send(holdfast.url, 'hello')
  const { lease } = await claimed(runId, owner)
  expect(await why(runId)).toMatchObject({
    state: 'running',
    reasons: [{ code: 'executing', runner: owner, attempt: 1 }],
  })
  await sql(`UPDATE holdfast.runners SET last_seen = now() - interval '1 minute'`)
  expect((await why(runId)).reasons.map(({ code }) => code)).toEqual(['runner_silent', 'executing'])
  await sql('DELETE FROM holdfast.runners')
  await request(`${holdfast.url}/runs/${runId}/cancel`, { json: {} })
  const { why: words, reasons } = await why(runId)
  expect(reasons).toMatchObject([
    { code: 'cancel_pending' },
    { code: 'runner_silent', lastSeen: null },
    { code: 'executing' },
  ])
  expect(words).toContain('not registered any more')
  await finish(holdfast.store, lease)
})

test('a run whose lease has passed says what becomes of it', async () => {
  const owner = await runner()
  const { runId } = await send(holdfast.url, 'hello')
  const { lease } = await claimed(runId, owner, 1)
  await sql('DELETE FROM holdfast.runners')
  expect((await why(runId)).reasons).toMatchObject([
    { code: 'lease_passed', runner: owner },
    { code: 'no_runner' },
  ])
  await sql(
    `INSERT INTO holdfast.run_steps (run_id, step_key, tenant_id, kind, idempotency_key, policy, intent_epoch)
     VALUES ($1, 'pay', 'dev', 'step', 'k', 'stop', 0)`,
    [runId],
  )
  expect((await why(runId)).reasons.at(-1)).toMatchObject({ code: 'in_doubt', step: 'pay' })
  await sql('DELETE FROM holdfast.run_steps WHERE run_id = $1', [runId])
  await request(`${holdfast.url}/runs/${runId}/cancel`, { json: {} })
  expect((await why(runId)).reasons).toEqual([{ code: 'to_be_ended', cause: 'cancel' }])
  await sql(`UPDATE holdfast.runs SET lease_until = now() + interval '1 hour' WHERE id = $1`, [
    runId,
  ])
  await finish(holdfast.store, lease)
})

test('a failed run gives its code, and a deleted one is not found', async () => {
  const owner = await runner()
  const { runId, conversationId } = await send(holdfast.url, 'hello')
  const { lease } = await claimed(runId, owner)
  await finish(holdfast.store, lease, { kind: 'error', code: 'in_doubt' })
  const { why: words, reasons } = await why(runId)
  expect(reasons).toMatchObject([{ code: 'ended', state: 'failed', errorCode: 'in_doubt' }])
  expect(words).toContain('whose result is not known. (in_doubt)')
  await request(`${holdfast.url}/conversations/${conversationId}`, { method: 'DELETE' })
  expect((await request(`${holdfast.url}/runs/${runId}/why`)).status).toBe(404)
})

async function cancelIt(runId: string) {
  const developer = { tenantId: 'dev', userId: 'dev', role: 'operator' } as const
  await cancelRun(holdfast.store, developer, runId)
}
