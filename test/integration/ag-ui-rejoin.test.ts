// Goal: what a client of the AG-UI endpoint may send oddly and late. Method: plain HTTP with RunAgentInput bodies.
import { randomUUID } from 'node:crypto'
import { get } from 'node:http'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readLog, request } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'

let holdfast: Holdfast

beforeAll(async () => {
  holdfast = await startHoldfast({ runnerEnv: { RUNNER_METRICS_PORT: '0' } })
})

afterAll(() => holdfast?.[Symbol.asyncDispose]())

function input(threadId: string, runId: string, content: string, more: object = {}) {
  const message = { id: `${threadId}-${content}`, role: 'user', content }
  return { threadId, runId, messages: [message], tools: [], context: [], ...more }
}

/** Posts and leaves as soon as the head of the answer is there. */
async function post(json: unknown, headers: Record<string, string> = {}) {
  const leave = new AbortController()
  const response = await fetch(`${holdfast.url}/ag-ui/demo`, {
    method: 'POST',
    body: JSON.stringify(json),
    headers: { 'content-type': 'application/json', ...headers },
    signal: leave.signal,
  })
  const first = new TextDecoder().decode((await response.body?.getReader().read())?.value)
  leave.abort()
  return { status: response.status, runId: response.headers.get('x-holdfast-run-id') ?? '', first }
}

test('a run that was joined under a new run id is stopped under that id too', async () => {
  const thread = randomUUID()
  const first = await post(input(thread, 'one', '/slow 20'))
  const joined = await post(input(thread, 'two', '/slow 20'))
  expect(joined.runId).toBe(first.runId)
  const cancel = await request(`${holdfast.url}/ag-ui/demo/cancel`, {
    json: { threadId: thread, runId: 'two' },
  })
  expect(cancel).toMatchObject({ status: 202, body: { runId: first.runId } })
  expect((await readLog(holdfast.url, first.runId)).at(-1)?.event).toMatchObject({
    outcome: { type: 'cancelled' },
  })
})

test('a bad cursor is refused before anything is accepted', async () => {
  const thread = randomUUID()
  const refused = await post(input(thread, 'three', 'hello'), { 'last-event-id': 'abc' })
  expect([refused.status, refused.runId]).toEqual([400, ''])
  const { body } = await request(`${holdfast.url}/conversations?limit=100`)
  const known = body['conversations'] as { externalId: string }[]
  expect(known.map(({ externalId }) => externalId)).not.toContain(thread)
})

test('the first answer is the log from 1, whatever cursor comes with it', async () => {
  const created = await post(input(randomUUID(), 'four', 'hello'), { 'last-event-id': '3' })
  expect(created.status).toBe(200)
  const log = await readLog(holdfast.url, created.runId)
  expect(log[0]).toMatchObject({ id: 1, event: { type: 'RUN_STARTED', runId: 'four' } })
})

test('a fresh client with no state of its own does not erase the one of the conversation', async () => {
  const thread = randomUUID()
  const first = await post(input(thread, 'five', '/state'))
  const state = await stateAfter(first.runId)
  expect(Object.keys(state as object)).not.toEqual([])
  const second = await post(input(thread, 'six', 'and now?', { state: {} }))
  expect(await stateAfter(second.runId)).toEqual(state)
})

async function stateAfter(runId: string): Promise<unknown> {
  await readLog(holdfast.url, runId)
  const { body: run } = await request(`${holdfast.url}/runs/${runId}`)
  const conversation = await request(
    `${holdfast.url}/conversations/${String(run['conversationId'])}`,
  )
  return conversation.body['state']
}

test('no path that somebody asks a runner for ends it', async () => {
  const { body } = await request(`${holdfast.url}/runners`)
  const [runner] = body['runners'] as { metricsUrl: string }[]
  const { hostname, port } = new URL(runner?.metricsUrl ?? '')
  for (const path of ['//', '/%', '/metrics?x', '/__proto__']) {
    const status = await new Promise<number | undefined>((resolve, reject) => {
      get({ hostname, port, path }, (response) => {
        response.resume()
        resolve(response.statusCode)
      }).on('error', reject)
    })
    expect([path, status]).toEqual([path, path.startsWith('/metrics') ? 200 : 404])
  }
})
