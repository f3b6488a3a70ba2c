// Goal: kill -9 of a runner costs a run time, never its ending. Method: two runners with a lease of two seconds; one
// is frozen while the other claims, so that each test knows whom it kills.
import type { AgUiEvent } from '@holdfast/protocol'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { request, send } from '../support/api.ts'
import { attach, checkAll, checkRun, clientHolds, textOf } from '../support/checker.ts'
import { type Holdfast, type Runner, startHoldfast } from '../support/holdfast.ts'
import { answer, opening, startUpstream, type Upstream } from '../support/upstream.ts'
import { cancel, frozen, outcomes, ownerOf, readRun } from './observe.ts'

const LEASE_MS = 2000
/** A sweep comes every second, give or take a fifth; the rest is for a busy machine. */
const SWEEP_MS = 1200
const SLACK_MS = 6000

let upstream: Upstream
let holdfast: Holdfast
let victim: Runner
let heir: Runner

beforeAll(async () => {
  upstream = await startUpstream()
  const remote = { type: 'ag-ui', url: upstream.url }
  holdfast = await startHoldfast({
    runners: 2,
    env: { LEASE_SECONDS: `${LEASE_MS / 1000}` },
    agents: {
      default: 'demo',
      agents: {
        demo: { type: 'demo' },
        brittle: { type: 'demo', onLost: 'fail' },
        poison: { type: 'demo', maxAttempts: 2 },
        doubtful: remote,
        harmless: { ...remote, effects: 'none' },
      },
    },
  })
  ;[victim, heir] = holdfast.runners as [Runner, Runner]
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await upstream?.[Symbol.asyncDispose]()
})

/** `victim` claims what `begin` sends, and is killed when `begin` returns; `heir` finds it all. */
async function killDuring(begin: () => Promise<void>): Promise<void> {
  await frozen(heir, async () => {
    await begin()
    victim.kill('SIGKILL')
    await victim.exited
  })
}

async function replaceVictim() {
  victim = await holdfast.startRunner()
}

test('a run is said again on the same stream, whatever its runner was doing when it was killed', async () => {
  const url = holdfast.url
  const command = '/think /activity /state /slow 2 all of it'
  const tool = `/slow 2 /tool ${'look for it '.repeat(15)}`
  const ids: string[] = []
  await killDuring(async () => {
    const talking = await send(url, command)
    const stream = attach(url, talking.runId)
    ids.push(talking.runId)
    await stream.seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
    const calling = await send(url, tool)
    ids.push(calling.runId)
    await attach(url, calling.runId).seen(({ type }) => type === 'TOOL_CALL_ARGS')
    const claimed = await send(url, command)
    ids.push(claimed.runId)
    await ownerOf(holdfast, claimed.runId)
  })
  const dead = victim
  const streams = ids.map((runId) => attach(url, runId))
  const replacing = replaceVictim()
  const checked = await Promise.all(ids.map((runId) => checkRun(url, runId)))
  const held = await Promise.all(streams.map((stream) => stream.held))
  await replacing
  for (const [at, { run, log, text }] of checked.entries()) {
    expect(outcomes(run)).toEqual(['lost', 'succeeded'])
    expect([run.epoch, run.attemptsUsed]).toEqual([2, 2])
    expect(textOf(held[at]?.messages ?? [])).toBe(text)
    expect(text.match(/This is turn 1/g)).toHaveLength(1)
    expect(run.attempts[0]?.runner).toBe(dead.bootId)
    expect(run.attempts[1]?.runner).not.toBe(dead.bootId)
    const withdrawn = log.findIndex(({ event }) => event.type === 'MESSAGES_SNAPSHOT')
    const after = await clientHolds(log.slice(0, withdrawn + 1).map((frame) => frame.event))
    // Reasoning and activity cannot be removed from a client, only emptied; everything else is gone.
    expect(after.state).toEqual({})
    const left = after.messages.filter((message) => message.role !== 'user')
    expect(left.map(({ role }) => role)).toEqual(LEFT_BEHIND[at] ?? expect.anything())
    expect(left.every(({ content }) => content === '' || isEmptyObject(content))).toBe(true)
  }
  expect(held[0]?.state).toEqual({ demo: { turn: 1, done: true } })
  const args = checked[1]?.log.map(({ event }) => event) ?? []
  const takeover = args.findIndex((event) => isAttempt(event, 2))
  const lost = args.slice(0, takeover).map((event) => event.type)
  expect(lost).toContain('TOOL_CALL_ARGS')
  expect(lost).not.toContain('TOOL_CALL_RESULT')
})

test('an attached stock client sees one valid stream across the loss, and a queued run only waits', async () => {
  const url = holdfast.url
  let stream: ReturnType<typeof attach> | undefined
  let talking = ''
  await killDuring(async () => {
    talking = (await send(url, '/think /activity /state /slow 1 tell me')).runId
    stream = attach(url, talking)
    await stream.seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
  })
  // Nobody is there to claim it but the heir, which has just woken up to a dead neighbour.
  const queued = await send(url, 'hello')
  const [lost, waiting] = [await checkRun(url, talking), await checkRun(url, queued.runId)]
  const held = await stream?.held
  expect(held?.messages).toEqual((await clientHolds(lost.log.map(({ event }) => event))).messages)
  expect(stream?.events).toEqual(lost.log.map(({ event }) => event))
  expect(held?.messages.map(({ role }) => role)).toEqual(
    lost.messages.map(({ message }) => message.role),
  )
  expect(outcomes(waiting.run)).toEqual(['succeeded'])
  await replaceVictim()
})

test('a run whose owner is dead is ended as the record says: cancelled, lost or in doubt', async () => {
  const url = holdfast.url
  let begunAt = 0
  const [stopped, brittle, doubtful, harmless] = await (async () => {
    const sent: { runId: string; conversationId: string }[] = []
    await killDuring(async () => {
      sent.push(await send(url, '/slow 10 a story'))
      sent.push(await send(url, '/slow 10 a story', { agent: 'brittle' }))
      for (const agent of ['doubtful', 'harmless']) {
        const before = upstream.exchanges.length
        sent.push(await send(url, 'do something', { agent }))
        const exchange = await upstream.exchange(before)
        exchange.say(...opening(exchange, 'I will. '), ...callBegun)
      }
      for (const { runId } of sent) {
        await attach(url, runId).seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
      }
      for (const { runId } of sent.slice(2)) {
        await attach(url, runId).seen(({ type }) => type === 'TOOL_CALL_START')
      }
    })
    begunAt = performance.now()
    expect(await cancel(url, sent[0]?.runId ?? '')).toBe(202)
    return sent
  })()
  if (!stopped || !brittle || !doubtful || !harmless) throw new Error('four runs were sent')

  const end = await checkRun(url, stopped.runId)
  expect(performance.now() - begunAt).toBeLessThan(LEASE_MS + SWEEP_MS + SLACK_MS)
  const next = await request(`${url}/runs`, {
    json: { message: 'go on', clientTurnId: 'after', conversationId: stopped.conversationId },
  })
  expect(next.status).toBe(202)
  expect(end.run).toMatchObject({ state: 'stopped', outcome: 'cancelled', attemptsUsed: 1 })
  expect(end.messages[1]).toMatchObject({ status: 'partial' })

  const failed = await checkRun(url, brittle.runId)
  expect(failed.run).toMatchObject({ state: 'failed', error: { code: 'runner_lost' } })
  expect(failed.messages[1]).toMatchObject({ status: 'partial' })
  expect(failed.text).toMatch(/^This/)

  const doubt = await checkRun(url, doubtful.runId)
  expect(doubt.run).toMatchObject({
    state: 'failed',
    error: { code: 'in_doubt' },
    inDoubt: [{ step: expect.stringMatching(/^send_money /), idempotencyKey: doubtful.runId }],
  })
  expect(doubt.text).toBe('I will. ')
  expect(doubt.messages.at(-1)).toMatchObject({ message: { role: 'tool', content: 'interrupted' } })

  const again = await upstream.exchange(2)
  expect(again.headers['idempotency-key']).toBe(harmless.runId)
  answer(again, 'Once more.')
  expect(await checkRun(url, harmless.runId)).toMatchObject({ text: 'Once more.' })
  expect(upstream.exchanges).toHaveLength(3)
  await replaceVictim()
})

test('a run that takes its runner with it every time ends when its attempts are used up', async () => {
  const url = holdfast.url
  const { runId } = await send(url, '/slow 30 poison', { agent: 'poison' })
  const replacements: Promise<unknown>[] = []
  for (const epoch of [1, 2]) {
    const owner = await ownerOf(holdfast, runId, epoch)
    owner.kill('SIGKILL')
    await owner.exited
    replacements.push(holdfast.startRunner())
  }
  await Promise.all(replacements)
  const { run } = await checkRun(url, runId)
  expect(run).toMatchObject({ state: 'failed', error: { code: 'attempts_exhausted' } })
  expect(run.attemptsUsed).toBe(2)
  expect(outcomes(run)).toEqual(['lost', 'lost'])
  expect((await readRun(url, runId)).epoch).toBe(3)
})

/** By run; the third may have been killed before it said anything. */
const LEFT_BEHIND = [['reasoning', 'activity'], []]

function isEmptyObject(content: unknown): boolean {
  return typeof content === 'object' && content !== null && Object.keys(content).length === 0
}

const callBegun = [
  { type: 'TOOL_CALL_START', toolCallId: 'c1', toolCallName: 'send_money' },
  { type: 'TOOL_CALL_ARGS', toolCallId: 'c1', delta: '{"to":' },
] as AgUiEvent[]

function isAttempt(event: AgUiEvent, epoch: number): boolean {
  return event.type === 'CUSTOM' && event.name === 'holdfast.attempt' && event.value.epoch === epoch
}
