// Goal: what an agent of the user's has done is not done again when its runner dies. Method: two runners of which one is
// frozen while the other claims, so that it is known who is killed; a server of the test's stands for the outside.
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { request, send } from '../support/api.ts'
import { checkAll, checkRun } from '../support/checker.ts'
import { type Holdfast, type Runner, startHoldfast } from '../support/holdfast.ts'
import { type StandIn, startStandIn } from '../support/stand-in.ts'
import { frozen, outcomes } from './observe.ts'

const AGENTS = fileURLToPath(new URL('../support/agents/', import.meta.url))

let outside: StandIn
let holdfast: Holdfast
let victim: Runner
let heir: Runner

beforeAll(async () => {
  outside = await startStandIn()
  const agent = (name: string) => ({ type: 'module', path: join(AGENTS, `${name}.ts`) })
  holdfast = await startHoldfast({
    runners: 2,
    env: { LEASE_SECONDS: '2' },
    runnerEnv: { STAGES_URL: outside.url },
    agents: {
      agents: { stages: agent('stages'), payment: agent('payment') },
    },
  })
  ;[victim, heir] = holdfast.runners as [Runner, Runner]
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await outside?.[Symbol.asyncDispose]()
})

/** `victim` claims what `begin` sends, and is killed when `begin` returns; `heir` finds it all. */
async function killDuring(begin: () => Promise<void>): Promise<void> {
  await frozen(heir, async () => {
    await begin()
    victim.kill('SIGKILL')
    await victim.exited
  })
}

test('killed after its third of five steps, an agent redoes none of the first three', async () => {
  const first = outside.exchanges.length
  let runId = ''
  await killDuring(async () => {
    runId = (await send(holdfast.url, 'go', { agent: 'stages' })).runId
    for (let stage = 1; stage <= 3; stage += 1) {
      ;(await outside.exchange(first + stage - 1)).json({ stage })
    }
    // The fourth has begun, and its runner dies in it.
    await outside.exchange(first + 3)
  })
  const again = await outside.exchange(first + 4)
  again.json({ stage: 4 })
  ;(await outside.exchange(first + 5)).json({ stage: 5 })
  const { run, text } = await checkRun(holdfast.url, runId)
  expect(outcomes(run)).toEqual(['lost', 'succeeded'])
  const asked = outside.exchanges.slice(first)
  expect(asked.map(({ path }) => path)).toEqual(
    [1, 2, 3, 4, 4, 5].map((stage) => `/stage/${stage}`),
  )
  expect(again.headers['idempotency-key']).toBe(asked[3]?.headers['idempotency-key'])
  expect(text).toBe('1 2 3 4 5 ')
  victim = await holdfast.startRunner()
})

test('killed in a tool call with an effect: it happens once with its key, or the run says in_doubt, as its policy says', async () => {
  const runs: Record<string, string> = {}
  const first = outside.exchanges.length
  await killDuring(async () => {
    for (const policy of ['retry', 'ask', 'stop', 'default']) {
      const before = outside.exchanges.length
      runs[policy] = (await send(holdfast.url, policy, { agent: 'payment' })).runId
      await outside.exchange(before)
    }
  })
  const keys = outside.exchanges.slice(first).map(({ headers }) => headers['idempotency-key'])
  expect(new Set(keys).size).toBe(4)
  // Of the four, two go on: one pays again with the same key, one asks what became of the first.
  const answered = [await outside.exchange(first + 4), await outside.exchange(first + 5)]
  for (const exchange of answered) exchange.json({ paid: 7 })
  for (const policy of ['retry', 'ask']) {
    const { run, text } = await checkRun(holdfast.url, runs[policy] ?? '')
    expect(outcomes(run)).toEqual(['lost', 'succeeded'])
    expect(text).toBe('Paid: {"paid":7}')
  }
  const again = answered.map(({ headers }) => headers['idempotency-key'])
  expect(new Set(again)).toEqual(new Set(keys.slice(0, 2)))
  for (const policy of ['stop', 'default']) {
    const { run, messages } = await checkRun(holdfast.url, runs[policy] ?? '')
    expect(run).toMatchObject({ state: 'failed', error: { code: 'in_doubt' } })
    expect(messages.at(-1)?.message).toMatchObject({ role: 'tool', content: 'interrupted' })
    const { body } = await request(`${holdfast.url}/runs/${runs[policy]}`)
    const at = policy === 'stop' ? 2 : 3
    expect(body['inDoubt']).toEqual([expect.objectContaining({ idempotencyKey: keys[at] })])
  }
  expect(outside.exchanges).toHaveLength(first + 6)
  victim = await holdfast.startRunner()
})
