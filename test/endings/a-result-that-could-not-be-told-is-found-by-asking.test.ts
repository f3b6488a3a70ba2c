// Goal: an end that was committed and could not be told to anybody is there for whoever asks: by stream, by record, by
// sending the same turn again. Method: the runner killed between commit and hint; the BFF killed under a reader.
import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { outcomes } from '../chaos/observe.ts'
import { isTerminalEvent, readEvents, request } from '../support/api.ts'
import { attach, checkRun } from '../support/checker.ts'
import { startProbedRunner } from '../support/probed-runner.ts'
import { answer, opening } from '../support/upstream.ts'
import { BEGINNING, openStage, sendTo } from './stage.ts'

/** A poll stands behind each hint. */
const POLL_MS = 4000

test('an end of which no hint was sent is found by readers and by the next turn', async () => {
  await using stage = await openStage({ env: { LEASE_SECONDS: '30' } })
  const { holdfast, upstream, url } = stage
  const runner = await startProbedRunner(holdfast)
  const { runId, conversationId, exchange } = await stage.begin()
  const reader = attach(url, runId)
  const queued = await sendTo(url, conversationId, { onActive: 'enqueue' })
  const { held } = await runner.hold('afterFinishCommit')
  exchange.finish()
  await held
  const committedAt = performance.now()
  runner.kill('SIGKILL')
  await runner.exited
  expect((await request(`${url}/runs/${runId}`)).body).toMatchObject({
    state: 'succeeded',
    outcome: 'success',
  })
  expect((await reader.held).messages.at(-1)).toMatchObject({ content: BEGINNING })
  expect(performance.now() - committedAt).toBeLessThan(POLL_MS)

  await holdfast.startRunner()
  answer(await upstream.exchange(1), 'The next turn.')
  expect((await checkRun(url, String(queued.body['runId']))).text).toBe('The next turn.')
  const { run } = await checkRun(url, runId)
  expect(outcomes(run)).toEqual(['succeeded'])
})

test('a reader whose BFF dies at the end reads the rest from another one, and a repeat is told the same run', async () => {
  await using stage = await openStage({ bffs: 2 })
  const { holdfast, upstream } = stage
  await holdfast.startRunner()
  const [dying, staying] = holdfast.bffs
  if (!dying || !staying) throw new Error('two BFFs were started')
  const turn = { message: 'tell me', clientTurnId: randomUUID() }
  const { body } = await request(`${dying.url}/runs`, { json: turn })
  const runId = String(body['runId'])
  const exchange = await upstream.exchange(0)
  exchange.say(...opening(exchange, BEGINNING))
  const seen = await readEvents(dying.url, runId, {
    after: 0,
    until: (frames) => frames.some(({ event }) => event.type === 'TEXT_MESSAGE_CONTENT'),
  })
  dying.kill('SIGKILL')
  await dying.exited
  exchange.finish()
  const cursor = seen.at(-1)?.id ?? -1
  const rest = await readEvents(staying.url, runId, { lastEventId: cursor })
  expect(rest[0]?.id).toBe(cursor + 1)
  expect(rest.map(({ event }) => isTerminalEvent(event)).indexOf(true)).toBe(rest.length - 1)
  const again = await request(`${staying.url}/runs`, { json: turn })
  expect(again).toMatchObject({ status: 200, body: { runId, state: 'succeeded' } })
  expect((await checkRun(staying.url, runId)).text).toBe(BEGINNING)
})
