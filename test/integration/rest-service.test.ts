// Goal: what operators, scrapers and people with a browser find. Method: one Holdfast of real processes, plain HTTP.
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readLog, request, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { until } from '../support/readers.ts'

let holdfast: Holdfast

beforeAll(async () => {
  holdfast = await startHoldfast()
})

afterAll(() => holdfast[Symbol.asyncDispose]())

const get = (path: string) => request(`${holdfast.url}${path}`)

/** Every route of the contract as it must stand in the OpenAPI document. */
const ROUTES: Readonly<Record<string, readonly string[]>> = {
  '/runs': ['get', 'post'],
  '/runs/{id}': ['get'],
  '/runs/{id}/why': ['get'],
  '/runs/{id}/timeline': ['get'],
  '/runs/{id}/artifacts/{name}': ['get'],
  '/runs/{id}/cancel': ['post'],
  '/runs/{id}/events': ['get'],
  '/conversations': ['get'],
  '/conversations/{id}': ['get', 'patch', 'delete'],
  '/conversations/{id}/attachments/{attachmentId}': ['get'],
  '/ag-ui/{agent}': ['post'],
  '/ag-ui/{agent}/cancel': ['post'],
  '/runners': ['get'],
  '/notifications': ['get'],
  '/notifications/{eventId}/redrive': ['post'],
  '/healthz': ['get'],
  '/readyz': ['get'],
  '/metrics': ['get'],
}

/** What the BFF's own figures are called. */
const METRICS = [
  'holdfast_runs',
  'holdfast_queue_oldest_seconds',
  'holdfast_oldest_xmin_age_seconds',
  'holdfast_open_streams',
  'holdfast_event_loop_lag_seconds',
  'holdfast_event_delivery_seconds',
  'holdfast_outbox_lag_seconds',
  'holdfast_deliveries',
]

test('the probes say alive and ready', async () => {
  expect(await get('/healthz')).toMatchObject({ status: 200, body: { status: 'alive' } })
  expect(await get('/readyz')).toMatchObject({
    status: 200,
    body: { status: 'ready', reasons: [] },
  })
})

test('the metrics are Prometheus text and hold the contract’s names', async () => {
  const { runId } = await send(holdfast.url, '/long 2')
  await readLog(holdfast.url, runId)
  const { status, headers, body } = await get('/metrics')
  expect(status).toBe(200)
  expect(headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/)
  const text = String(body['text'])
  for (const name of METRICS) expect(text).toMatch(new RegExp(`^# TYPE ${name} `, 'm'))
  expect(text).toMatch(/^holdfast_runs\{state="queued"\} \d+$/m)
  expect(text).toMatch(/^holdfast_runs\{state="running"\} \d+$/m)
})

test('the OpenAPI document lists every route of the contract and no other', async () => {
  const { status, headers, body } = await get('/openapi.json')
  expect(status).toBe(200)
  expect(headers.get('content-type')).toMatch(/^application\/json/)
  expect(body['openapi']).toMatch(/^3\.1\./)
  const paths = body['paths'] as Record<string, Record<string, Record<string, unknown>>>
  const listed = Object.fromEntries(
    Object.entries(paths).map(([path, methods]) => [path, Object.keys(methods).sort()]),
  )
  const expected = Object.entries(ROUTES).map(([path, methods]) => [path, [...methods].sort()])
  expect(listed).toEqual(Object.fromEntries(expected))
  for (const operation of Object.values(paths).flatMap((methods) => Object.values(methods))) {
    expect(operation['summary']).toEqual(expect.stringMatching(/./))
    expect(operation['responses']).toEqual(expect.any(Object))
  }
})

test('the OpenAPI document names what a client has to be ready for', async () => {
  const { body } = await get('/openapi.json')
  const paths = JSON.parse(JSON.stringify(body['paths']))
  for (const [path, methods] of Object.entries(ROUTES)) {
    for (const method of methods) {
      const statuses = Object.keys(paths[path][method].responses)
      expect([path, method, statuses]).toEqual([path, method, expect.arrayContaining(['default'])])
      expect([path, method, statuses.some((status) => status.startsWith('2'))]).toEqual([
        path,
        method,
        true,
      ])
    }
  }
  const events = paths['/runs/{id}/events'].get
  expect(Object.keys(events.responses).sort()).toEqual(['200', '204', 'default'])
  expect(events.parameters.map(({ name }: { name: string }) => name.toLowerCase()).sort()).toEqual([
    'after',
    'id',
    'last-event-id',
  ])
})

test('every reference inside the OpenAPI document can be followed', async () => {
  const { body } = await get('/openapi.json')
  const references = JSON.stringify(body).matchAll(/"\$ref":"([^"]+)"/g)
  for (const [, reference = ''] of references) {
    const [root, ...steps] = reference.split('/')
    expect(root).toBe('#')
    const target = steps.reduce<unknown>(
      (at, step) => (at as Record<string, unknown> | undefined)?.[step],
      body,
    )
    expect([reference, target]).toEqual([reference, expect.any(Object)])
  }
})

test('a real answer has every field that the OpenAPI document requires', async () => {
  const { body } = await get('/openapi.json')
  const { runId } = await send(holdfast.url, '/long 1')
  await readLog(holdfast.url, runId)
  const run = (await get(`/runs/${runId}`)).body
  const schema = JSON.parse(JSON.stringify(body['paths']))['/runs/{id}'].get.responses['200']
  const { required, properties } = schema.content['application/json'].schema
  expect(Object.keys(properties).sort()).toEqual(Object.keys(run).sort())
  expect(required.filter((field: string) => !(field in run))).toEqual([])
})

test('the documents can be read in a browser', async () => {
  const page = await fetch(`${holdfast.url}/docs`)
  expect(page.status).toBe(200)
  expect(page.headers.get('content-type')).toMatch(/^text\/html/)
  expect(await page.text()).toContain('swagger')
})

test('the page at / runs only its own blocks', async () => {
  const { status, headers, body } = await get('/')
  expect(status).toBe(200)
  expect(headers.get('content-type')).toBe('text/html; charset=utf-8')
  const policy = headers.get('content-security-policy') ?? ''
  expect(policy).toContain("default-src 'none'")
  expect(policy).toContain("frame-ancestors 'none'")
  expect(policy).toMatch(/script-src 'sha256-[A-Za-z0-9+/]+='(;|$)/)
  expect(policy).not.toMatch(/unsafe|\*/)
  expect(headers.get('x-content-type-options')).toBe('nosniff')
  expect(String(body['text'])).not.toMatch(/(src|href)="https?:/)
})

test('a route that is not there, and a method that is not, are not found', async () => {
  for (const [method, path] of [
    ['GET', '/nowhere'],
    ['PUT', '/runs'],
    ['DELETE', '/runs/x'],
    ['POST', '/healthz'],
  ] as const) {
    const answer = await request(`${holdfast.url}${path}`, { method })
    expect(answer).toMatchObject({ status: 404, body: { code: 'not_found', status: 404 } })
  }
})

test('an operator sees the runners, and the one that left no more', async () => {
  const leaving = await holdfast.startRunner()
  const bootIds = async () => {
    const { body } = await get('/runners')
    return (body['runners'] as { bootId: string }[]).map(({ bootId }) => bootId)
  }
  const expected = holdfast.runners.map(({ bootId }) => bootId).sort()
  expect((await bootIds()).sort()).toEqual(expected)
  const { body } = await get('/runners')
  expect((body['runners'] as unknown[])[0]).toEqual({
    bootId: expect.any(String),
    name: expect.any(String),
    pid: expect.any(Number),
    agents: ['demo'],
    capacity: 100,
    running: expect.any(Number),
    lastSeen: expect.stringMatching(/Z$/),
    draining: false,
    metricsUrl: null,
  })
  leaving.kill('SIGTERM')
  expect((await leaving.exited).code).toBe(0)
  await until('it is not listed', 5000, async () => !(await bootIds()).includes(leaving.bootId))
})

test('notifications can be asked for, and one that is not there cannot be redriven', async () => {
  const { status, body } = await get('/notifications')
  expect(status).toBe(200)
  expect(body['notifications']).toEqual(expect.any(Array))
  const eventId = '01900000-0000-7000-8000-000000000000'
  const url = `${holdfast.url}/notifications/${eventId}/redrive`
  expect((await request(url, { method: 'POST' })).status).toBe(404)
})
