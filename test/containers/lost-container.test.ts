// Goal: a container that is killed, frozen, cut off or restarted in the middle of answers costs time, never an
// ending. Method: docker kill, pause, network disconnect and restart; one deployment, checked after each.
import { randomUUID } from 'node:crypto'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { type Frame, readLog, request, send } from '../support/api.ts'
import { type Attached, attach, type Checked, checkRun } from '../support/checker.ts'
import { until } from '../support/readers.ts'
import { type Deployment, type Runner, startDeployment } from './deployment.ts'

/** A lease, a sweep and a busy machine; how much sooner it really comes is a figure of the benchmark. */
const TAKEOVER_MS = 8000
const LOAD = 10
const SENDERS = 5

let deployment: Deployment
/** The runners that live. */
let fleet: Runner[]

beforeAll(async () => {
  deployment = await startDeployment({ runners: 3 })
  fleet = [...deployment.runners]
})

afterEach((context) => deployment.check(context))

afterAll(() => deployment?.[Symbol.asyncDispose]())

/** A run in the middle of its answer, its owner, and a reader over the BFF that did not accept it. */
async function begin(message: string): Promise<{ runId: string; owner: Runner; reader: Attached }> {
  const [here, there] = deployment.bffs
  const { runId } = await send(here.url, message)
  const reader = attach(there.url, runId)
  await reader.seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
  return { runId, reader, owner: await deployment.ownerOf(runId) }
}

/** The second attempt said all there is, once, and the reader saw exactly the log. */
function expectTakenOver({ run, text, log }: Checked, owner: Runner, reader: Attached) {
  expect(run).toMatchObject({ state: 'succeeded', epoch: 2, attemptsUsed: 2 })
  expect(run.attempts).toMatchObject([
    { runner: owner.bootId, outcome: 'lost' },
    { outcome: 'succeeded' },
  ])
  expect(run.attempts[1]?.runner).not.toBe(owner.bootId)
  expect(text.match(/This is turn 1/g)).toHaveLength(1)
  expect(text).toMatch(/fail \(\/fail\)\.$/)
  expect(saidAfterTakeover(log, run.runId)).toEqual(new Set([2]))
  expect(reader.events).toEqual(log.map(({ event }) => event))
}

/** The epochs whose words are in the log behind the takeover; the demo agent's ids say whose they are. */
function saidAfterTakeover(log: readonly Frame[], runId: string): Set<number> {
  const from = log.findIndex(({ event }) => event.type === 'MESSAGES_SNAPSHOT')
  const said = log.slice(from).flatMap(({ event }) => {
    if (event.type !== 'TEXT_MESSAGE_CONTENT') return []
    expect(event.messageId.startsWith(`${runId}.`)).toBe(true)
    return Number(event.messageId.split('.')[1])
  })
  return new Set(said)
}

/** Work that nobody else can claim is claimed and done by this runner. */
async function expectOfUse(runner: Runner) {
  const others = fleet.filter((each) => each !== runner)
  await Promise.all(others.map((other) => other.pause()))
  try {
    const { runId } = await send(deployment.url, 'hello')
    const { run } = await checkRun(deployment.url, runId)
    // A claim that hung in the network may have been granted too late to be used: one more attempt.
    expect(run.attempts.at(-1)?.outcome).toBe('succeeded')
    expect(new Set(run.attempts.map((attempt) => attempt.runner))).toEqual(new Set([runner.bootId]))
  } finally {
    await Promise.all(others.map((other) => other.unpause()))
  }
}

test('the run of a runner that is killed in the middle of an answer goes on over the same stream', async () => {
  const { runId, owner, reader } = await begin('/slow 2 tell me')
  await owner.kill()
  const killedAt = performance.now()
  await reader.seen(isAttempt(2))
  expect(performance.now() - killedAt).toBeLessThan(TAKEOVER_MS)
  expectTakenOver(await checkRun(deployment.url, runId), owner, reader)
  expect(await reader.held).toBeDefined()
  fleet = [...fleet.filter((each) => each !== owner), await deployment.startRunner()]
})

test('nothing of a runner frozen past its lease is accepted, and it goes on to claim other work', async () => {
  const { runId, owner, reader } = await begin('/slow 2 tell me')
  await owner.pause()
  await reader.seen(isAttempt(2))
  await owner.unpause()
  expectTakenOver(await checkRun(deployment.url, runId), owner, reader)
  await expectOfUse(owner)
})

test('the run of a runner cut off from the database is taken over, and the runner is of use again', async () => {
  const { runId, owner, reader } = await begin('/slow 2 tell me')
  await owner.disconnect(deployment.networkId)
  await reader.seen(isAttempt(2))
  expectTakenOver(await checkRun(deployment.url, runId), owner, reader)
  await owner.connect(deployment.networkId)
  await expectOfUse(owner)
})

test('a database that is restarted under load loses no run, and none that was sent meanwhile', async () => {
  const begun = await Promise.all(Array.from({ length: LOAD }, () => begin('/slow 3 tell me')))
  let working = true
  const restarted = deployment.database.restart().finally(() => {
    working = false
  })
  const sending = Array.from({ length: SENDERS }, async () => {
    const runIds: string[] = []
    while (working) runIds.push(await sendUntilAccepted())
    return runIds
  })
  const meanwhile = (await Promise.all(sending)).flat()
  await restarted
  for (const { runId, reader } of begun) {
    const { run, text, log } = await checkRun(deployment.url, runId)
    const outcomes = run.attempts.map(({ outcome }) => outcome)
    expect(outcomes.pop()).toBe('succeeded')
    expect(outcomes).toEqual(outcomes.map(() => 'lost'))
    expect(text.match(/This is turn 1/g)).toHaveLength(1)
    expect(await reader.held).toBeDefined()
    expect(reader.events).toEqual(log.map(({ event }) => event))
  }
  expect(meanwhile.length).toBeGreaterThanOrEqual(SENDERS)
  for (const runId of meanwhile) {
    expect((await checkRun(deployment.url, runId)).run.state).toBe('succeeded')
  }
})

/** What a user's client does: the same turn again until it hears of success, and then it reads the answer. */
async function sendUntilAccepted(): Promise<string> {
  const json = { message: 'are you there?', clientTurnId: randomUUID() }
  let runId = ''
  await until('the turn is accepted', 30_000, async () => {
    const { status, body } = await request(`${deployment.url}/runs`, { json })
    if (status !== 200 && status !== 202) expect([502, 503]).toContain(status)
    runId = String(body['runId'])
    return status === 200 || status === 202
  })
  await readLog(deployment.url, runId)
  return runId
}

function isAttempt(epoch: number) {
  return (event: Frame['event']) =>
    event.type === 'CUSTOM' && event.name === 'holdfast.attempt' && event.value.epoch === epoch
}
