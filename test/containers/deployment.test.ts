// Goal: the images are a working service, and every piece of it can be replaced while it works. Method: the images
// as they are released, in containers on a network of their own; docker stop of each kind.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { send } from '../support/api.ts'
import { attach, checkRun, textOf } from '../support/checker.ts'
import { metric, until } from '../support/readers.ts'
import { type Deployment, startDeployment } from './deployment.ts'
import { runImage } from './images.ts'

/** The first look comes ten seconds after the start. */
const HEALTHY_MS = 20_000
/** A draining BFF asks for up to 3 s, and the client adds up to half of that. */
const RETURNED_MS = 6000

let deployment: Deployment

beforeAll(async () => {
  deployment = await startDeployment({ runners: 3 })
})

afterEach((context) => deployment.check(context))

afterAll(() => deployment?.[Symbol.asyncDispose]())

test('a turn that one BFF accepts is read over the other', async () => {
  const [here, there] = deployment.bffs
  const { runId, conversationId } = await send(here.url, '/tool hello')
  const reader = attach(there.url, runId)
  const first = await checkRun(here.url, runId)
  expect(first.run).toMatchObject({ state: 'succeeded', attemptsUsed: 1 })
  expect(textOf((await reader.held).messages)).toBe(first.text)
  const next = await send(there.url, 'and again', { conversationId })
  expect((await checkRun(here.url, next.runId)).text).toMatch(/^This is turn 2/)
})

test('the containers run as somebody who is not root, and call themselves healthy', async () => {
  for (const container of [...deployment.bffs, ...deployment.runners]) {
    expect(await container.exec('id', '-un')).toBe('node')
    expect(await container.exec('sh', '-c', 'touch /app/x 2>&1 || echo refused')).toMatch(/refused/)
    await until('it is healthy', HEALTHY_MS, async () => (await container.health()) === 'healthy')
  }
})

test('a BFF that would let everybody in does not start where others can reach it', async () => {
  const url = 'postgres://holdfast@127.0.0.1/holdfast'
  const refused = await runImage('bff', { DATABASE_URL: url })
  expect(refused.code).toBe(1)
  expect(refused.stderr).toMatch(/^holdfast bff: HOST must be a loopback address .*\n$/)
})

test('all runners are replaced one after the other under load, and no run fails or loses a try', async () => {
  const { url } = deployment
  const sent = await Promise.all(Array.from({ length: 20 }, () => send(url, '/slow 3 carry on')))
  const readers = sent.map(({ runId }) => attach(url, runId))
  await Promise.all(readers.map((reader) => reader.seen(({ type }) => type.startsWith('TEXT_'))))
  const old = deployment.runners.slice()
  for (const runner of old) {
    expect(await runner.stop()).toBe(0)
    await deployment.startRunner()
  }
  const checked = await Promise.all(sent.map(({ runId }) => checkRun(url, runId)))
  for (const [at, { run, text, log }] of checked.entries()) {
    expect(run).toMatchObject({ state: 'succeeded', attemptsUsed: 1 })
    const outcomes = run.attempts.map(({ outcome }) => outcome)
    expect(outcomes.pop()).toBe('succeeded')
    expect(outcomes).toEqual(outcomes.map(() => 'handed_back'))
    expect(text.match(/This is turn 1/g)).toHaveLength(1)
    expect(readers[at]?.events).toEqual(log.map(({ event }) => event))
  }
  expect(checked.filter(({ run }) => run.attempts.length > 1).length).toBeGreaterThan(0)
})

test('a BFF that is stopped with open streams ends well, and its readers go on over the other', async () => {
  const { url, bffs } = deployment
  const [leaving, staying] = bffs
  const sent = await Promise.all(Array.from({ length: 5 }, () => send(url, '/slow 9 carry on')))
  const readers = sent.map(({ runId }) => attach(url, runId))
  await Promise.all(readers.map((reader) => reader.seen(({ type }) => type.startsWith('TEXT_'))))
  expect(await metric(leaving.address, 'holdfast_open_streams')).toBe(readers.length)
  expect(await leaving.stop()).toBe(0)
  await until('all readers are at the other BFF', RETURNED_MS, async () => {
    return (await metric(staying.address, 'holdfast_open_streams')) === readers.length
  })
  for (const [at, { runId }] of sent.entries()) {
    const { run, log } = await checkRun(url, runId)
    expect(run).toMatchObject({ state: 'succeeded', epoch: 1 })
    expect(await readers[at]?.held).toBeDefined()
    expect(readers[at]?.events).toEqual(log.map(({ event }) => event))
  }
})
