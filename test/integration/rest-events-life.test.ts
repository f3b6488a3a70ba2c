// Goal: connections come and go, the runs do not care. Method: two BFFs and a runner, real signals.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Frame, readEvents, readLog, request, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { metric, until } from '../support/readers.ts'

const EXIT_MS_MAX = 5000

let holdfast: Holdfast

beforeAll(async () => {
  holdfast = await startHoldfast()
})

afterAll(() => holdfast[Symbol.asyncDispose]())

test('when all readers leave, the run goes on to its own end', async () => {
  const { runId } = await send(holdfast.url, '/long 40 /slow 1')
  const leave = (frames: readonly Frame[]) => frames.length >= 4
  const readers = Array.from({ length: 10 }, (_, at) =>
    readEvents(holdfast.url, runId, at % 2 ? { until: leave } : { after: 0, until: leave }),
  )
  await Promise.all(readers)
  await until('no stream is open', 5000, async () => {
    return (await metric(holdfast.url, 'holdfast_open_streams')) === 0
  })
  await until('the run has ended', 10_000, async () => {
    const { body } = await request(`${holdfast.url}/runs/${runId}`)
    return body['finishedAt'] !== null
  })
  const { body } = await request(`${holdfast.url}/runs/${runId}`)
  expect(body).toMatchObject({ state: 'succeeded', cancelRequestedAt: null, attemptsUsed: 1 })
})

test('readers of one run on two BFFs get the same log', async () => {
  const second = await holdfast.startBff()
  const { runId } = await send(holdfast.url, '/think /tool x /long 40 /slow 1')
  const logs = await Promise.all(
    [holdfast.url, second.url, second.url].map((url) => readLog(url, runId)),
  )
  expect(logs[1]).toEqual(logs[0])
  expect(logs[2]).toEqual(logs[0])
  expect(logs[0]?.map(({ id }) => id)).toEqual(logs[0]?.map((_, at) => at + 1))
})

test('a BFF that is told to stop ends 50 streams, which go on elsewhere without a gap', async () => {
  const leaving = await holdfast.startBff()
  const sent = await Promise.all(
    Array.from({ length: 10 }, () => send(leaving.url, '/long 200 /slow 6')),
  )
  let speaking = 0
  const spoken = Promise.withResolvers<void>()
  const readers = sent.flatMap(({ runId }) =>
    Array.from({ length: 5 }, async () => {
      const cut = await readEvents(leaving.url, runId, {
        after: 0,
        onFrame({ id }) {
          if (id === 5) speaking += 1
          if (speaking === 50) spoken.resolve()
        },
      })
      return { runId, cut }
    }),
  )
  const raw = fetch(`${leaving.url}/runs/${sent[0]?.runId}/events`).then((answer) => answer.text())
  await spoken.promise
  const toldAtMs = performance.now()
  leaving.kill('SIGTERM')
  expect((await leaving.exited).code).toBe(0)
  expect(performance.now() - toldAtMs).toBeLessThan(EXIT_MS_MAX)
  expect(await raw).toMatch(/\nretry: \d+\n\n$/)
  const logs = new Map(
    await Promise.all(
      sent.map(async ({ runId }) => [runId, await readLog(holdfast.url, runId)] as const),
    ),
  )
  for (const { runId, cut } of await Promise.all(readers)) {
    const last = cut.at(-1)
    expect(last?.event.type).not.toMatch(/^RUN_/)
    const rest = await readEvents(holdfast.url, runId, { lastEventId: last?.id ?? 0 })
    expect([...cut, ...rest]).toEqual(logs.get(runId))
  }
  for (const log of logs.values()) {
    expect(log.at(-1)?.event).toMatchObject({ outcome: { type: 'success' } })
  }
})
