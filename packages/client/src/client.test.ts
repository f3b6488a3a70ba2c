import type { ServerResponse } from 'node:http'
import { type AgUiEvent, comment, EventType, frame, retry } from '@holdfast/protocol'
import { HoldfastError } from '@holdfast/std'
import { expect, test } from 'vitest'
import { createClient } from './client.ts'
import type { Followed } from './follow.ts'
import { type Answer, scriptedServer } from './testing/scripted-server.ts'

const RUN = { threadId: 't', runId: 'r' }
const STARTED: AgUiEvent = { type: EventType.RUN_STARTED, ...RUN }
const OPENED: AgUiEvent = { type: EventType.TEXT_MESSAGE_START, messageId: 'm' }
const CLOSED: AgUiEvent = { type: EventType.TEXT_MESSAGE_END, messageId: 'm' }
const FINISHED: AgUiEvent = { type: EventType.RUN_FINISHED, ...RUN }

function said(delta: string): AgUiEvent {
  return { type: EventType.TEXT_MESSAGE_CONTENT, messageId: 'm', delta }
}

const LOG = [STARTED, OPENED, said('a'), said('b'), said('c'), CLOSED, FINISHED]

function framed(from: number, to: number): string {
  return LOG.slice(from - 1, to)
    .map((event, index) => frame(from + index, JSON.stringify(event)))
    .join('')
}

function opened(response: ServerResponse): ServerResponse {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
  response.write(retry(1))
  return response
}

/** Sends the text and ends as it should. */
function sends(text: string): Answer {
  return (response) => opened(response).end(text)
}

/** Sends the text and then the socket is gone. */
function sendsAndBreaks(text: string): Answer {
  return (response) => opened(response).write(text, () => response.destroy())
}

function refuses(status: number, problem: object): Answer {
  return (response) =>
    response
      .writeHead(status, { 'content-type': 'application/problem+json' })
      .end(JSON.stringify(problem))
}

async function collect(events: AsyncIterable<Followed>): Promise<Followed[]> {
  const all: Followed[] = []
  for await (const one of events) all.push(one)
  return all
}

const WHOLE: Followed[] = LOG.map((event, index) => ({ sequence: index + 1, event }))

test('a run that is followed over cut connections gives each event once and in order', async () => {
  await using server = await scriptedServer([
    sendsAndBreaks(framed(1, 3)),
    sends(comment('alive')),
    sendsAndBreaks(`${framed(2, 4)}id: 5\ndata: {"type":"TEXT_`),
    sends(framed(5, 7)),
  ])
  const client = createClient({ baseUrl: `${server.baseUrl}/` })
  expect(await collect(client.follow('r 1', { after: 0 }))).toEqual(WHOLE)
  expect(server.asked.map((ask) => ask.headers['last-event-id'])).toEqual(['0', '3', '3', '4'])
  expect(server.asked[0]?.url).toBe('/runs/r%201/events')
})

test('a prelude that is cut leaves no trace; a whole one comes at once and the log goes on', async () => {
  const prelude = [STARTED, { type: EventType.MESSAGES_SNAPSHOT as const, messages: [] }, OPENED]
  const [first, second, last] = prelude.map((event) => JSON.stringify(event))
  const whole = `${frame(null, first ?? '')}${frame(null, second ?? '')}${frame(4, last ?? '')}`
  await using server = await scriptedServer([
    sendsAndBreaks(frame(null, first ?? '') + frame(null, second ?? '')),
    sends(whole),
    sends(framed(5, 7)),
  ])
  const client = createClient({ baseUrl: server.baseUrl })
  expect(await collect(client.follow('r'))).toEqual([
    ...prelude.map((event, index) => ({ sequence: index === 2 ? 4 : null, event })),
    ...WHOLE.slice(4),
  ])
  const cursors = server.asked.map((ask) => ask.headers['last-event-id'])
  expect(cursors).toEqual([undefined, undefined, '4'])
})

test('nothing more is asked after the terminal event, also if the connection stays open', async () => {
  await using server = await scriptedServer([(response) => opened(response).write(framed(1, 7))])
  const client = createClient({ baseUrl: server.baseUrl })
  expect(await collect(client.follow('r'))).toHaveLength(7)
  expect(server.asked).toHaveLength(1)
})

test('a run whose end the reader has already ends at once', async () => {
  await using server = await scriptedServer([(response) => response.writeHead(204).end()])
  const client = createClient({ baseUrl: server.baseUrl })
  expect(await collect(client.follow('r', { after: 7 }))).toEqual([])
})

test.each([
  [404, 'not_found', 'not_found', {}],
  [410, 'gone', 'cursor_gone', { floor: 12 }],
  [409, 'conflict', 'cursor_ahead', {}],
])('a %i is an error of its kind and is not tried again', async (status, kind, code, more) => {
  await using server = await scriptedServer([refuses(status, { code, detail: 'no', ...more })])
  const client = createClient({ baseUrl: server.baseUrl })
  const error = await collect(client.follow('r', { after: 5 })).catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(HoldfastError)
  expect(error).toMatchObject({ kind, code, message: 'no', details: { status, ...more } })
  expect(server.asked).toHaveLength(1)
})

test('the service says how long to wait, in its stream and when it refuses', async () => {
  const atMs: number[] = []
  const noted =
    (answer: Answer): Answer =>
    (response) => {
      atMs.push(performance.now())
      answer(response)
    }
  await using server = await scriptedServer([
    noted((response) => opened(response).end(`${retry(200)}${framed(1, 2)}`)),
    noted(sends(framed(3, 4))),
    noted((response) => response.writeHead(503, { 'retry-after': '0.3' }).end('busy')),
    noted(sends(framed(5, 7))),
  ])
  const client = createClient({ baseUrl: server.baseUrl })
  expect(await collect(client.follow('r'))).toEqual(WHOLE)
  const [first = 0, second = 0, third = 0, fourth = 0] = atMs
  // A timer may fire a little before its time.
  expect(second - first).toBeGreaterThan(190)
  expect(fourth - third).toBeGreaterThan(290)
})

test('a connection that is never answered is given up and opened again', async () => {
  await using server = await scriptedServer([() => {}, sends(framed(1, 7))])
  const client = createClient({ baseUrl: server.baseUrl, idleTimeoutMs: 50 })
  const signal = AbortSignal.timeout(4000)
  expect(await collect(client.follow('r', { signal }))).toEqual(WHOLE)
})

test('headers that cannot be had are an error and not a cut connection', async () => {
  await using server = await scriptedServer([])
  const client = createClient({
    baseUrl: server.baseUrl,
    headers: () => Promise.reject(new Error('no token')),
  })
  await expect(collect(client.follow('r'))).rejects.toThrow('no token')
})

test('what is not an event stream is an error and is not tried again', async () => {
  await using server = await scriptedServer([
    (response) => response.writeHead(200, { 'content-type': 'text/html' }).end('<p>hello'),
  ])
  const client = createClient({ baseUrl: server.baseUrl })
  await expect(collect(client.follow('r'))).rejects.toMatchObject({ code: 'unexpected_answer' })
  expect(server.asked).toHaveLength(1)
})

test('a connection that has gone silent is given up and opened again', async () => {
  await using server = await scriptedServer([
    (response) => opened(response).write(framed(1, 2)),
    sends(framed(3, 7)),
  ])
  const client = createClient({ baseUrl: server.baseUrl, idleTimeoutMs: 50 })
  expect(await collect(client.follow('r'))).toEqual(WHOLE)
})

test('an abort ends the loop with its reason and closes the connection', async () => {
  const closed = Promise.withResolvers<void>()
  await using server = await scriptedServer([
    (response) => {
      response.on('close', closed.resolve)
      opened(response).write(framed(1, 2))
    },
  ])
  const client = createClient({ baseUrl: server.baseUrl })
  const stop = new AbortController()
  const reason = new Error('enough')
  const seen: Followed[] = []
  const reading = (async () => {
    for await (const one of client.follow('r', { signal: stop.signal })) {
      seen.push(one)
      if (seen.length === 2) stop.abort(reason)
    }
  })()
  await expect(reading).rejects.toBe(reason)
  await closed.promise
  expect(seen).toEqual(WHOLE.slice(0, 2))
})

test('leaving the loop closes the connection', async () => {
  const closed = Promise.withResolvers<void>()
  await using server = await scriptedServer([
    (response) => {
      response.on('close', closed.resolve)
      opened(response).write(framed(1, 2))
    },
  ])
  const client = createClient({ baseUrl: server.baseUrl })
  for await (const _ of client.follow('r')) break
  await closed.promise
  expect(server.asked).toHaveLength(1)
})

test('a run is folded as it comes, also from where another reader was', async () => {
  await using server = await scriptedServer([
    sendsAndBreaks(framed(1, 4)),
    sends(framed(5, 7)),
    sends(framed(5, 7)),
  ])
  const client = createClient({ baseUrl: server.baseUrl })
  const folds = await Array.fromAsync(client.foldRun('r'))
  const last = folds.at(-1)
  expect(last?.sequence).toBe(7)
  expect(last?.fold.messages).toEqual([{ id: 'm', role: 'assistant', content: 'abc' }])
  expect(last?.fold.terminal).toEqual(FINISHED)
  const from = folds.find((one) => one.sequence === 4)
  const rest = await Array.fromAsync(client.foldRun('r', from ? { from } : {}))
  expect(rest.at(-1)).toEqual(last)
  expect(server.asked[2]?.headers['last-event-id']).toBe('4')
})

test('send and cancel post what they are given, with the headers of the moment', async () => {
  const receipt = {
    runId: 'r',
    conversationId: 'c',
    state: 'queued',
    sequence: 1,
    links: { self: '/runs/r', events: '/runs/r/events', cancel: '/runs/r/cancel' },
  }
  const cancelled = { runId: 'r', state: 'stopped', cancelRequestedAt: null }
  await using server = await scriptedServer([
    (response) => response.writeHead(202).end(JSON.stringify(receipt)),
    (response) => response.writeHead(200).end(JSON.stringify(cancelled)),
    refuses(409, { code: 'conversation_busy', detail: 'busy', activeRunId: 'r0' }),
  ])
  let asked = 0
  const headers = () => ({ authorization: `Bearer ${++asked}` })
  const client = createClient({ baseUrl: server.baseUrl, headers })
  const body = { message: 'hello', clientTurnId: 'turn-1' }
  expect(await client.send(body)).toEqual(receipt)
  expect(await client.cancel('r', 'enough')).toEqual(cancelled)
  await expect(client.send(body)).rejects.toMatchObject({
    code: 'conversation_busy',
    details: { activeRunId: 'r0' },
  })
  expect(server.asked.map((ask) => [ask.method, ask.url, ask.headers.authorization])).toEqual([
    ['POST', '/runs', 'Bearer 1'],
    ['POST', '/runs/r/cancel', 'Bearer 2'],
    ['POST', '/runs', 'Bearer 3'],
  ])
  expect(server.asked.map((ask) => JSON.parse(ask.body))).toEqual([
    body,
    { reason: 'enough' },
    body,
  ])
})
