// Goal: a runner that was frozen past its lease does no harm when it wakes up, and is of use again. Method: SIGSTOP
// and SIGCONT of real processes; an upstream that records when its connections are closed.
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { send } from '../support/api.ts'
import { attach, checkAll, checkRun } from '../support/checker.ts'
import { type Holdfast, type Runner, startHoldfast } from '../support/holdfast.ts'
import { answer, opening, startUpstream, type Upstream } from '../support/upstream.ts'
import { frozen, outcomes, ownerOf } from './observe.ts'

let upstream: Upstream
let holdfast: Holdfast
let sleeper: Runner
let heir: Runner

beforeAll(async () => {
  upstream = await startUpstream()
  holdfast = await startHoldfast({
    runners: 2,
    env: { LEASE_SECONDS: '3' },
    agents: {
      default: 'remote',
      agents: { remote: { type: 'ag-ui', url: upstream.url }, demo: { type: 'demo' } },
    },
  })
  ;[sleeper, heir] = holdfast.runners as [Runner, Runner]
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await upstream?.[Symbol.asyncDispose]()
})

test('a runner frozen for less than its lease loses nothing', async () => {
  const url = holdfast.url
  const { runId } = await send(url, '/slow 3 patience', { agent: 'demo' })
  const owner = await ownerOf(holdfast, runId)
  const stream = attach(url, runId)
  await stream.seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
  await frozen(owner, () => new Promise((resolve) => setTimeout(resolve, 1000)))
  const { run, text } = await checkRun(url, runId)
  expect(outcomes(run)).toEqual(['succeeded'])
  expect(run).toMatchObject({ epoch: 1, attemptsUsed: 1 })
  expect(text).toMatch(/^This is turn 1 .* fail \(\/fail\)\.$/)
})

test('nothing of a runner frozen past its lease is accepted, and it goes on to claim other work', async () => {
  const url = holdfast.url
  const sent: { runId: string }[] = []
  await frozen(heir, async () => {
    sent.push(await send(url, 'tell me'))
    sent.push(await send(url, '/slow 2 tell me', { agent: 'demo' }))
    const first = await upstream.exchange(0)
    first.say(...opening(first, 'Said by the one who fell asleep. '))
    for (const { runId } of sent) {
      await attach(url, runId).seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
    }
    sleeper.kill('SIGSTOP')
  })
  const [remote, demo] = sent
  if (!remote || !demo) throw new Error('two runs were sent')
  const [first, second] = [await upstream.exchange(0), await upstream.exchange(1)]
  expect(first.closedAt).toBeNull()
  // What the frozen one would read first when it wakes up: the rest of an answer, and its end.
  answer(first, 'Too late.')
  second.say(...opening(second, 'Said by the heir. '))
  const wokenAt = performance.now()
  sleeper.kill('SIGCONT')
  expect((await first.closed) - wokenAt).toBeLessThan(5000)
  second.finish()
  const [told, slow] = [await checkRun(url, remote.runId), await checkRun(url, demo.runId)]
  for (const { run } of [told, slow]) {
    expect(outcomes(run)).toEqual(['lost', 'succeeded'])
    expect(run.attempts.map(({ runner }) => runner)).toEqual([sleeper.bootId, heir.bootId])
  }
  expect(told.text).toBe('Said by the heir. ')
  expect(slow.text.match(/This is turn 1/g)).toHaveLength(1)

  await frozen(heir, async () => {
    const { runId } = await send(url, 'hello again', { agent: 'demo' })
    const { run } = await checkRun(url, runId)
    expect(run.attempts).toMatchObject([{ runner: sleeper.bootId, outcome: 'succeeded' }])
  })
})
