// Goal: connections come and go, the runs do not care. Method: BFFs and a runner as real processes, real signals.
// What takes a heartbeat to show begins before the first test and is looked at in the last ones.
import { SignJWT } from 'jose'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Frame, readEvents, readLog, request, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { metric, until } from '../support/readers.ts'

const EXIT_MS_MAX = 15_000
/** A heartbeat after the token's end. */
const TOKEN_END_MS_MAX = 16_000
const SECRET = 'a secret that is long enough for HS256'
/** A word every 60 ms, for a minute. */
const SLOW = '/long 1000 /slow 60'

let holdfast: Holdfast
let silentStream: Promise<string>
let outlived: Promise<{ frames: Frame[]; lastedMs: number; state: unknown }>

beforeAll(async () => {
  holdfast = await startHoldfast()
  silentStream = followSilence()
  outlived = followWithShortToken()
})

afterAll(() => holdfast[Symbol.asyncDispose]())

/** What one connection sends until its second comment, while the run says nothing for hours. */
async function followSilence(): Promise<string> {
  const { runId } = await send(holdfast.url, '/slow 86400')
  const begun = (frames: readonly Frame[]) => frames.at(-1)?.event.type === 'TEXT_MESSAGE_START'
  const { length } = await readEvents(holdfast.url, runId, { after: 0, until: begun })
  const response = await fetch(`${holdfast.url}/runs/${runId}/events?after=${length}`)
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader()
  let text = ''
  while ((text.match(/^:/gm)?.length ?? 0) < 2) {
    const { value, done = true } = (await reader?.read()) ?? {}
    if (done) break
    text += value ?? ''
  }
  await reader?.cancel()
  await request(`${holdfast.url}/runs/${runId}/cancel?wait=10`, { json: {} })
  return text
}

async function followWithShortToken() {
  const { url } = await holdfast.startBff({ AUTH_JWT_SECRET: SECRET })
  const headersUntil = async (seconds: number) => {
    const jwt = new SignJWT({ sub: 'ada', tenant: 'acme' }).setProtectedHeader({ alg: 'HS256' })
    jwt.setExpirationTime(`${seconds} seconds`)
    return { authorization: `Bearer ${await jwt.sign(new TextEncoder().encode(SECRET))}` }
  }
  const lasting = await headersUntil(600)
  const { runId } = await send(url, SLOW, {}, lasting)
  const sinceMs = performance.now()
  const frames = await readEvents(url, runId, { after: 0, headers: await headersUntil(3) })
  const lastedMs = performance.now() - sinceMs
  const { body } = await request(`${url}/runs/${runId}`, { headers: lasting })
  await request(`${url}/runs/${runId}/cancel?wait=10`, { json: {}, headers: lasting })
  return { frames, lastedMs, state: body['state'] }
}

test('when all readers leave, the run goes on to its own end', async () => {
  const { url } = await holdfast.startBff()
  const { runId } = await send(url, '/long 40 /slow 1')
  const leave = (frames: readonly Frame[]) => frames.length >= 4
  const readers = Array.from({ length: 10 }, (_, at) =>
    readEvents(url, runId, at % 2 ? { until: leave } : { after: 0, until: leave }),
  )
  await Promise.all(readers)
  await until('no stream is open', 5000, async () => {
    return (await metric(url, 'holdfast_open_streams')) === 0
  })
  await until('the run has ended', 10_000, async () => {
    return (await request(`${url}/runs/${runId}`)).body['finishedAt'] !== null
  })
  const { body } = await request(`${url}/runs/${runId}`)
  expect(body).toMatchObject({ state: 'succeeded', cancelRequestedAt: null, attemptsUsed: 1 })
})

test('readers of one run on two BFFs get the same log', async () => {
  const urls = holdfast.bffs.slice(0, 1).map(({ url }) => url)
  urls.push((await holdfast.startBff()).url)
  const { runId } = await send(holdfast.url, '/think /tool x /long 40 /slow 1')
  const logs = await Promise.all([...urls, ...urls].map((url) => readLog(url, runId)))
  for (const log of logs) expect(log).toEqual(logs[0])
  expect(logs[0]?.map(({ id }) => id)).toEqual(logs[0]?.map((_, at) => at + 1))
})

test('a BFF that is told to stop ends 50 streams, which go on elsewhere without a gap', async () => {
  const leaving = await holdfast.startBff()
  const runIds = await Promise.all(
    Array.from({ length: 10 }, async () => (await send(leaving.url, SLOW)).runId),
  )
  let speaking = 0
  const spoken = Promise.withResolvers<void>()
  const readers = runIds.flatMap((runId) =>
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
  const raw = fetch(`${leaving.url}/runs/${runIds[0]}/events`).then((answer) => answer.text())
  await spoken.promise
  const toldAtMs = performance.now()
  leaving.kill('SIGTERM')
  expect((await leaving.exited).code).toBe(0)
  expect(performance.now() - toldAtMs).toBeLessThan(EXIT_MS_MAX)
  expect(await raw).toMatch(/\nretry: \d+\n\n$/)
  const rests = (await Promise.all(readers)).map(({ runId, cut }) => {
    expect(cut.at(-1)?.event.type).not.toMatch(/^RUN_/)
    const rest = readEvents(holdfast.url, runId, { lastEventId: cut.at(-1)?.id ?? 0 })
    return { runId, cut, rest }
  })
  const url = `${holdfast.url}/runs`
  for (const runId of runIds) {
    expect((await request(`${url}/${runId}`)).body).toMatchObject({ state: 'running' })
    await request(`${url}/${runId}/cancel`, { json: {} })
  }
  for (const { runId, cut, rest } of rests) {
    const log = await readLog(holdfast.url, runId)
    expect([...cut, ...(await rest)]).toEqual(log)
    expect(log.at(-1)?.event).toMatchObject({ outcome: { type: 'cancelled' } })
  }
})

test('comments keep a silent stream awake', async () => {
  const text = await silentStream
  expect(text.replace(/^retry: 1000\n\n/, '').replaceAll(/^:.*\n\n/gm, '')).toBe('')
  expect(text.match(/^:/gm)).toHaveLength(2)
})

test('a stream ends after its token did, while the run goes on', async () => {
  const { frames, lastedMs, state } = await outlived
  expect(lastedMs).toBeGreaterThan(3000)
  expect(lastedMs).toBeLessThan(TOKEN_END_MS_MAX)
  expect(frames.length).toBeGreaterThan(5)
  expect(frames.some(({ event }) => event.type === 'RUN_FINISHED')).toBe(false)
  expect(state).toBe('running')
})
