// Goal: any client, over any network, gets every event exactly once, and none hurts another. Method:
// stock EventSource, plain fetch and bare sockets, through proxies that cut and split.
import { wait } from '@holdfast/std'
import { EventSource } from 'eventsource'
import pg from 'pg'
import { expect, test } from 'vitest'
import { type Frame, readEvents, readLog, send } from '../support/api.ts'
import { startCuttingProxy } from '../support/cutting-proxy.ts'
import { startFloodAgent } from '../support/flood-agent.ts'
import { startHoldfast } from '../support/holdfast.ts'
import { metric, textOf, until } from '../support/readers.ts'
import { seeded } from '../support/seeded.ts'
import { openSlowSocket } from '../support/slow-socket.ts'

test('an EventSource that is cut again and again gets each event once, and stops at the end', async () => {
  await using holdfast = await startHoldfast()
  await using proxy = await startCuttingProxy(holdfast.url, {
    cutAfterBytes: (connection) => (connection <= 4 ? 1500 : null),
  })
  const { runId } = await send(holdfast.url, '/think /tool /slow 2 tell me')
  const cursors: (string | null)[] = []
  const frames: Frame[] = []
  const closed = Promise.withResolvers<number | undefined>()
  const source = new EventSource(`${proxy.url}/runs/${runId}/events?after=0`, {
    fetch: (url, init) => {
      cursors.push(new Headers(init?.headers).get('last-event-id'))
      return fetch(url, init)
    },
  })
  source.onmessage = ({ data, lastEventId }) => {
    frames.push({ id: Number(lastEventId), event: JSON.parse(data) })
  }
  source.onerror = ({ code }) => {
    if (source.readyState === EventSource.CLOSED) closed.resolve(code)
  }
  expect(await closed.promise).toBe(204)
  const log = await readLog(holdfast.url, runId)
  expect(frames).toEqual(log)
  expect(proxy.connections).toBeGreaterThan(4)
  expect(cursors[0]).toBeNull()
  expect(cursors.at(-1)).toBe(`${log.length}`)
  expect(cursors.length).toBeGreaterThanOrEqual(6)
})

test('however the bytes are split, the events are the same', async () => {
  const random = seeded('split streams')
  await using holdfast = await startHoldfast()
  const { runId } = await send(
    holdfast.url,
    '/think /tool 東京 /slow 0.2 größer 👩‍👩‍👧 “quoted” \u2028 line',
  )
  const log = await readLog(holdfast.url, runId)
  const whole = await readEvents(holdfast.url, runId)
  for (const pieceBytes of [() => 1, () => random.whole(1, 9), () => random.whole(1, 3000)]) {
    await using proxy = await startCuttingProxy(holdfast.url, { pieceBytes })
    expect(await readEvents(proxy.url, runId, { after: 0 })).toEqual(log)
    expect(await readEvents(proxy.url, runId)).toEqual(whole)
  }
})

test('the stream is plain: LF only, an id and one data line each, nothing that buffers it', async () => {
  await using holdfast = await startHoldfast()
  const { runId } = await send(holdfast.url, '/slow 0.1 hello')
  await readLog(holdfast.url, runId)
  const response = await fetch(`${holdfast.url}/runs/${runId}/events?after=0`, {
    headers: { 'accept-encoding': 'gzip, br', accept: 'text/event-stream' },
  })
  expect(Object.fromEntries(response.headers)).toMatchObject({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store, no-transform',
    'x-accel-buffering': 'no',
    'x-request-id': expect.any(String),
  })
  expect(response.headers.get('content-encoding')).toBeNull()
  const [first, ...blocks] = (await response.text()).split('\n\n')
  expect(first).toMatch(/^retry: 1000\n?:?$/)
  expect(blocks.pop()).toBe('')
  expect(blocks.join('\n')).not.toMatch(/\r|^event:/m)
  const frames = blocks.filter((block) => !block.startsWith(':'))
  frames.forEach((block, at) => {
    expect(block).toMatch(new RegExp(`^id: ${at + 1}\\ndata: \\{.*\\}$`))
  })
})

test('readers that hardly read hold up nobody and cost the BFF next to nothing', async () => {
  await using flood = await startFloodAgent(600, 10_000)
  await using holdfast = await startHoldfast({
    agents: { agents: { flood: { type: 'ag-ui', url: flood.url } } },
    // Fifty times the log is 300 MB.
    bffEnv: { NODE_OPTIONS: '--max-old-space-size=128' },
  })
  const { runId } = await send(holdfast.url, 'go')
  const log = await readLog(holdfast.url, runId)
  expect(textOf(log.map(({ event }) => event))).toBe(flood.text)
  const events = `${holdfast.url}/runs/${runId}/events?after=0`
  const slow = await Promise.all(Array.from({ length: 50 }, () => openSlowSocket(events)))
  // By the end of this they have what sockets buffer, and are stuck.
  expect(await readLog(holdfast.url, runId)).toEqual(log)
  for (let second = 0; second < 3; second += 1) {
    for (const reader of slow) reader.sip(1024)
    const startedAtMs = performance.now()
    const read = await readLog(holdfast.url, runId)
    // One that waited for the others would wait for as long as they sip.
    expect(performance.now() - startedAtMs).toBeLessThan(15_000)
    expect(read).toEqual(log)
    await wait(1000)
  }
  expect(await metric(holdfast.url, 'holdfast_open_streams')).toBe(slow.length)
  const [one, ...others] = slow
  await one?.drink()
  expect(one?.text.match(/(?<=^id: )\d+$/gm)?.map(Number)).toEqual(log.map(({ id }) => id))
  for (const reader of others) reader.vanish()
})

test('readers that vanish under backpressure leave nothing open', async () => {
  await using flood = await startFloodAgent(600, 10_000)
  await using holdfast = await startHoldfast({
    agents: { agents: { flood: { type: 'ag-ui', url: flood.url } } },
  })
  const { runId } = await send(holdfast.url, 'go')
  const log = await readLog(holdfast.url, runId)
  const events = `${holdfast.url}/runs/${runId}/events?after=0`
  const open = () => metric(holdfast.url, 'holdfast_open_streams')
  const readers = await Promise.all(Array.from({ length: 100 }, () => openSlowSocket(events)))
  expect(await readLog(holdfast.url, runId)).toEqual(log)
  expect(await open()).toBe(100)
  for (const reader of readers) reader.vanish()
  await until('no stream is open', 5000, async () => (await open()) === 0)
  expect(await readLog(holdfast.url, runId)).toEqual(log)
})

test('without its LISTEN session a BFF still delivers, by looking itself, and it listens again', async () => {
  await using holdfast = await startHoldfast()
  await using admin = await connected(holdfast.databaseUrl)
  const { runId } = await send(holdfast.url, '/slow 4 tell me slowly')
  const gapsMs: number[] = []
  let lastAtMs = performance.now()
  let cuts = 0
  const log = await readEvents(holdfast.url, runId, {
    after: 0,
    onFrame() {
      gapsMs.push(performance.now() - lastAtMs)
      lastAtMs = performance.now()
      if (gapsMs.length % 10 !== 0) return
      admin.cutListeners().then(
        (count) => (cuts += count),
        () => undefined,
      )
    },
  })
  expect(cuts).toBeGreaterThanOrEqual(2)
  expect(log).toEqual(await readLog(holdfast.url, runId))
  expect(log.map(({ id }) => id)).toEqual(log.map((_, at) => at + 1))
  expect(Math.max(...gapsMs)).toBeLessThan(5000)
  await until('all listen again', 5000, async () => (await admin.listeners()) === 2)
})

async function connected(databaseUrl: string) {
  const client = new pg.Client({ connectionString: databaseUrl })
  await client.connect()
  const listeners = `FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'holdfast% listen'`
  return {
    /** Ends the LISTEN sessions of all processes; how many there were. */
    async cutListeners(): Promise<number> {
      return (await client.query(`SELECT pg_terminate_backend(pid) ${listeners}`)).rowCount ?? 0
    },
    async listeners(): Promise<number> {
      return (await client.query(`SELECT 1 ${listeners}`)).rowCount ?? 0
    },
    [Symbol.asyncDispose]: () => client.end(),
  }
}
