// Goal: I16. What a step did outside is recorded before and after, and never repeated silently. Method: real runners
// whose agents call a server of the test, which decides when each call is answered; two runners, of which one is frozen
// while the other claims, so that it is known who is killed.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { request, send } from '../support/api.ts'
import { attach, checkAll, checkRun } from '../support/checker.ts'
import {
  EFFECTS_AGENTS,
  type Outside,
  startEffectsRunner,
  startOutside,
} from '../support/effects.ts'
import { type Holdfast, type Runner, startHoldfast } from '../support/holdfast.ts'
import { cancel, frozen, outcomes, until } from './observe.ts'

const LEASE_MS = 4000

let outside: Outside
let holdfast: Holdfast
let victim: Runner
let heir: Runner
let killed = false

beforeAll(async () => {
  outside = await startOutside()
  holdfast = await startHoldfast({
    runners: 0,
    env: { LEASE_SECONDS: `${LEASE_MS / 1000}` },
    agents: EFFECTS_AGENTS,
  })
  victim = await startEffectsRunner(holdfast, outside)
  heir = await startEffectsRunner(holdfast, outside)
})

afterEach(async (context) => {
  heir.kill('SIGCONT')
  if (killed) victim = await startEffectsRunner(holdfast, outside)
  killed = false
  await checkAll(holdfast, context)
})

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await outside?.[Symbol.asyncDispose]()
})

/** A run that does what `orders` say. */
async function ordered(orders: readonly object[], agent = 'effects'): Promise<string> {
  return (await send(holdfast.url, JSON.stringify(orders), { agent })).runId
}

/** `victim` claims what `begin` sends, and is killed when `begin` returns; `heir` finds it all. */
async function killDuring(begin: () => Promise<void>): Promise<void> {
  await frozen(heir, async () => {
    await begin()
    victim.kill('SIGKILL')
    killed = true
    await victim.exited
  })
}

async function inDoubt(runId: string) {
  const { body } = await request(`${holdfast.url}/runs/${runId}`)
  return body['inDoubt'] as { step: string; idempotencyKey: string; since: string }[]
}

type Span = { key: string; kind: string; parent: string | null; epoch: number; outcome: string }

async function timeline(runId: string) {
  const { body } = await request(`${holdfast.url}/runs/${runId}/timeline`)
  const spans = (body['spans'] as Span[]).filter(({ kind }) => kind !== 'queue')
  return {
    spans: spans.map(({ key, epoch, outcome }) => `${key} ${epoch} ${outcome}`),
    gaps: body['leaseGaps'] as { afterEpoch: number; ms: number; to: string | null }[],
    stale: (body['staleWrites'] as { operation: string }[]).map(({ operation }) => operation),
  }
}

test('I16: killed between intent and outcome, each policy does what it says, with the same key', async () => {
  const runs: Record<string, string> = {}
  await killDuring(async () => {
    for (const [name, policy] of [
      ['retry', 'retry'],
      ['stop', 'stop'],
      ['done', 'ask'],
      ['not_done', 'ask'],
      ['unknown', 'ask'],
    ] as const) {
      const runId = await ordered([{ do: 'charge', policy }, { say: name }])
      runs[name] = runId
      await outside.arrives(runId, 'do', 'charge')
      expect(await inDoubt(runId)).toEqual([])
    }
  })
  const runOf = (name: string) => runs[name] ?? ''
  const keyOf = (name: string) => `${runOf(name)}:charge`

  const retried = await outside.arrives(runOf('retry'), 'do', 'charge', 2)
  expect(retried.idempotencyKey).toBe(keyOf('retry'))
  retried.answer({ paid: 1 })
  for (const kind of ['done', 'not_done', 'unknown']) {
    const asked = await outside.arrives(runOf(kind), 'lookup', 'charge', 2)
    expect(asked.idempotencyKey).toBe(keyOf(kind))
    expect(await inDoubt(runOf(kind))).toMatchObject([{ step: 'charge' }])
    asked.answer({ kind, result: { paid: 2 } })
  }
  const again = await outside.arrives(runOf('not_done'), 'do', 'charge', 2)
  expect(again.idempotencyKey).toBe(keyOf('not_done'))
  again.answer({ paid: 3 })

  for (const [name, said, effects] of [
    ['retry', '{"paid":1}retry', ['do charge 1', 'do charge 2']],
    ['done', '{"paid":2}done', ['do charge 1', 'lookup charge 2']],
    ['not_done', '{"paid":3}not_done', ['do charge 1', 'lookup charge 2', 'do charge 2']],
  ] as const) {
    const { run, text } = await checkRun(holdfast.url, runOf(name))
    expect([name, outcomes(run), text]).toEqual([name, ['lost', 'succeeded'], said])
    expect(outside.of(runOf(name))).toEqual(effects)
    expect(await inDoubt(runOf(name))).toEqual([])
    const { spans, gaps } = await timeline(runOf(name))
    expect(spans).toEqual(['charge 1 in_doubt', 'charge 2 done'])
    expect(gaps).toMatchObject([{ afterEpoch: 1 }])
  }
  for (const name of ['stop', 'unknown']) {
    const { run } = await checkRun(holdfast.url, runOf(name))
    expect(run).toMatchObject({ state: 'failed', error: { code: 'in_doubt' } })
    expect(outside.of(runOf(name)).filter((effect) => effect.startsWith('do'))).toHaveLength(1)
    const [doubt] = await inDoubt(runOf(name))
    expect(doubt).toMatchObject({ step: 'charge', idempotencyKey: keyOf(name) })
    expect(Date.parse(doubt?.since ?? '')).toBeGreaterThan(0)
  }
})

test('I16: a step that has its outcome is not taken again by a later attempt', async () => {
  let runId = ''
  await killDuring(async () => {
    runId = await ordered([{ do: 'charge', policy: 'stop' }, { wait: 'now' }, { say: '.' }])
    ;(await outside.arrives(runId, 'do', 'charge')).answer({ paid: 5 })
    await outside.arrives(runId, 'wait', 'now')
  })
  ;(await outside.arrives(runId, 'wait', 'now', 2)).answer({})
  const { run, text } = await checkRun(holdfast.url, runId)
  expect([outcomes(run), text]).toEqual([['lost', 'succeeded'], '{"paid":5}.'])
  expect(outside.of(runId)).toEqual(['do charge 1', 'wait now 1', 'wait now 2'])
})

test('I1: the outcome of an attempt that has lost its run is refused, and stands in the ledger', async () => {
  let runId = ''
  await frozen(heir, async () => {
    runId = await ordered([{ do: 'charge', policy: 'retry', deaf: true }])
    await outside.arrives(runId, 'do', 'charge')
  })
  await frozen(victim, async () => {
    ;(await outside.arrives(runId, 'do', 'charge', 2)).answer({ by: 'heir' })
    const { run, text } = await checkRun(holdfast.url, runId)
    expect([outcomes(run), text]).toEqual([['lost', 'succeeded'], '{"by":"heir"}'])
  })
  ;(await outside.arrives(runId, 'do', 'charge')).answer({ by: 'zombie' })
  await until('the refused outcome is in the ledger', async () =>
    (await timeline(runId)).stale.includes('step_outcome'),
  )
  expect((await checkRun(holdfast.url, runId)).text).toBe('{"by":"heir"}')
})

test('a cancel in the middle of a step closes it at once and says that its effect is in doubt', async () => {
  const runId = await ordered([{ do: 'charge', policy: 'retry' }, { say: 'never' }])
  const effect = await outside.arrives(runId, 'do', 'charge')
  expect(await cancel(holdfast.url, runId)).toBe(202)
  await effect.closed
  const { run } = await checkRun(holdfast.url, runId)
  expect(run).toMatchObject({ state: 'stopped', outcome: 'cancelled' })
  expect(await inDoubt(runId)).toMatchObject([{ step: 'charge' }])
  expect((await timeline(runId)).spans).toEqual(['charge 1 in_doubt'])
})

test('a drain in the middle of a step hands it on, and the next attempt asks with the same key', async () => {
  let runId = ''
  await frozen(heir, async () => {
    runId = await ordered([{ do: 'charge', policy: 'ask' }])
    await outside.arrives(runId, 'do', 'charge')
    victim.kill('SIGTERM')
    killed = true
    await victim.exited
  })
  const asked = await outside.arrives(runId, 'lookup', 'charge', 2)
  expect(asked.idempotencyKey).toBe(`${runId}:charge`)
  asked.answer({ kind: 'done', result: 'paid' })
  const { run, text } = await checkRun(holdfast.url, runId)
  expect([outcomes(run), text]).toEqual([['handed_back', 'succeeded'], '"paid"'])
})

test('what a failed or stopped run has done is undone, the last first, each once and with a key of its own', async () => {
  const steps = ['a', 'b', 'c'].map((key) => ({ do: key, policy: 'retry', undo: key !== 'b' }))
  const failing = await ordered([...steps, { fail: true }])
  const stopping = await ordered([...steps, { wait: 'for ever' }])
  for (const runId of [failing, stopping]) {
    for (const key of ['a', 'b', 'c']) (await outside.arrives(runId, 'do', key)).answer({ of: key })
  }
  await outside.arrives(stopping, 'wait', 'for ever')
  await cancel(holdfast.url, stopping)
  for (const runId of [failing, stopping]) {
    for (const key of ['c', 'a']) {
      const undo = await outside.arrives(runId, 'undo', key)
      expect([undo.idempotencyKey, undo.result]).toEqual([`${runId}:${key}%3Aundo`, { of: key }])
      undo.answer({})
    }
  }
  const [failed, stopped] = [
    await checkRun(holdfast.url, failing),
    await checkRun(holdfast.url, stopping),
  ]
  expect(failed.run).toMatchObject({ state: 'failed', error: { code: 'agent_error' } })
  expect(stopped.run).toMatchObject({ state: 'stopped', error: null })
  expect(outside.of(failing)).toEqual(['do a 1', 'do b 1', 'do c 1', 'undo c 1', 'undo a 1'])
  expect((await timeline(failing)).spans).toEqual(
    ['a', 'b', 'c', 'c:undo', 'a:undo'].map((key) => `${key} 1 done`),
  )
})

test('steps with different keys are taken side by side, and one key names one effect', async () => {
  const both = [
    { do: 'left', policy: 'stop' },
    { do: 'right', policy: 'stop', parent: 'left' },
  ]
  const runId = await ordered([{ both }, { span: 'words' }])
  const [left, right] = [
    await outside.arrives(runId, 'do', 'left'),
    await outside.arrives(runId, 'do', 'right'),
  ]
  right.answer(1)
  left.answer(2)
  expect((await checkRun(holdfast.url, runId)).run.state).toBe('succeeded')
  expect((await timeline(runId)).spans.sort()).toEqual([
    'left 1 done',
    'right 1 done',
    'words 1 done',
  ])

  const twice = await ordered([{ both: [both[0], both[0]] }])
  const { run } = await checkRun(holdfast.url, twice)
  expect(run).toMatchObject({ state: 'failed', error: { code: 'agent_error' } })
  // The first of them may have been cut before it began.
  expect(outside.of(twice).length).toBeLessThan(2)
})

test('an agent that swallows its doubt does not succeed', async () => {
  let runId = ''
  await killDuring(async () => {
    runId = await ordered([{ swallow: { do: 'charge', policy: 'ask' } }, { say: 'all is well' }])
    await outside.arrives(runId, 'do', 'charge')
  })
  ;(await outside.arrives(runId, 'lookup', 'charge', 2)).answer({}, 500)
  const { run } = await checkRun(holdfast.url, runId)
  expect(run).toMatchObject({ state: 'failed', error: { code: 'in_doubt' } })
  expect(outside.of(runId)).toEqual(['do charge 1', 'lookup charge 2'])
})

test('an agent that goes on from a checkpoint at the end of the log withdraws nothing; behind it everything', async () => {
  const orders = [
    { say: 'one ' },
    { checkpoint: true },
    { wait: 'a' },
    { say: 'two ' },
    { wait: 'b' },
  ]
  const runs: string[] = []
  await killDuring(async () => {
    for (const [agent, last] of [
      ['resuming', 'a'],
      ['resuming', 'b'],
      ['effects', 'a'],
    ] as const) {
      const runId = await ordered(orders, agent)
      runs.push(runId)
      if (last === 'b') (await outside.arrives(runId, 'wait', 'a')).answer({})
      await outside.arrives(runId, 'wait', last)
    }
  })
  const streams = runs.map((runId) => attach(holdfast.url, runId))
  for (const runId of runs) {
    for (const key of ['a', 'b']) (await outside.arrives(runId, 'wait', key, 2)).answer({})
  }
  for (const [at, runId] of runs.entries()) {
    const { run, log, text } = await checkRun(holdfast.url, runId)
    expect([outcomes(run), text]).toEqual([['lost', 'succeeded'], 'one two '])
    const types = log.map(({ event }) => event.type)
    expect(
      types.some((type) => type === 'MESSAGES_SNAPSHOT'),
      `run ${at}`,
    ).toBe(at > 0)
    expect(types.filter((type) => type === 'CUSTOM')).toHaveLength(2)
    await streams[at]?.held
  }
})
