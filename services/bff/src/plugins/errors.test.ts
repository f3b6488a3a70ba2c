import { HoldfastError } from '@holdfast/std'
import Fastify, { type FastifyInstance } from 'fastify'
import { serializerCompiler, validatorCompiler } from 'fastify-type-provider-zod'
import { beforeEach, expect, test } from 'vitest'
import * as z from 'zod'
import { cleanInputPlugin } from './clean-input.ts'
import { errorsPlugin, invalidRequest } from './errors.ts'

let app: FastifyInstance
let thrown: unknown

beforeEach(() => {
  app = Fastify({ bodyLimit: 1 << 20 })
  app.setValidatorCompiler(validatorCompiler)
  app.setSerializerCompiler(serializerCompiler)
  errorsPlugin(app)
  cleanInputPlugin(app)
  app.get('/throw', () => {
    throw thrown
  })
  app.post('/echo', (request) => ({ body: request.body ?? 'nothing' }))
  app.get(
    '/checked',
    { schema: { querystring: z.object({ n: z.coerce.number().int() }) } },
    () => ({}),
  )
  app.get('/lying', { schema: { response: { 200: z.object({ n: z.number() }) } } }, () => ({
    n: 'secret',
  }))
})

const problemOf = async (url: string, options: object = {}) => {
  const response = await app.inject({ url, ...options })
  expect(response.headers['content-type']).toBe('application/problem+json')
  return { response, problem: response.json() }
}

test('a failure of the caller is told with its code and details', async () => {
  thrown = new HoldfastError('conflict', 'conversation_busy', 'Busy.', {
    details: { activeRunId: 'r' },
  })
  const { response, problem } = await problemOf('/throw')
  expect(response.statusCode).toBe(409)
  expect(problem).toEqual({
    type: 'urn:holdfast:problem:conversation_busy',
    title: 'The conversation has an unfinished run',
    status: 409,
    detail: 'Busy.',
    code: 'conversation_busy',
    activeRunId: 'r',
  })
})

test.each([
  [new Error('password is hunter2'), 500, 'internal'],
  [new HoldfastError('internal', 'internal', 'hunter2'), 500, 'internal'],
  [new HoldfastError('unavailable', 'overloaded', 'hunter2'), 503, 'overloaded'],
  [new HoldfastError('unavailable', 'never_listed', 'hunter2'), 503, 'internal'],
])('what a failure of ours says stays in the log: %s', async (error, status, code) => {
  thrown = error
  const { response, problem } = await problemOf('/throw')
  expect(problem).toMatchObject({ status, code })
  expect(response.payload).not.toContain('hunter2')
  expect(response.headers['retry-after']).toBe(status === 503 ? '1' : undefined)
})

test('an answer that does not fit its schema is not sent', async () => {
  const { response, problem } = await problemOf('/lying')
  expect(problem).toMatchObject({ status: 500, code: 'internal' })
  expect(response.payload).not.toContain('secret')
})

test('a query that does not fit names the field', async () => {
  const { problem } = await problemOf('/checked?n=x')
  expect(problem).toMatchObject({ status: 400, code: 'invalid_request', errors: [{ path: 'n' }] })
})

test.each([
  ['no route', '/nope', {}, 404, 'not_found'],
  ['no JSON', '/echo', { payload: '{', type: 'application/json' }, 400, 'invalid_request'],
  ['no JSON type', '/echo', { payload: 'x', type: 'text/plain' }, 415, 'unsupported_media_type'],
  [
    'too much',
    '/echo',
    { payload: `"${'x'.repeat(1 << 20)}"`, type: 'application/json' },
    413,
    'body_too_large',
  ],
  [
    'too deep',
    '/echo',
    { payload: '['.repeat(5000) + ']'.repeat(5000), type: 'application/json' },
    400,
    'invalid_request',
  ],
])(
  '%s is a problem too',
  async (_name, url, { payload, type }: { payload?: string; type?: string }, status, code) => {
    const headers = { 'content-type': type }
    const { problem } = await problemOf(
      url,
      payload === undefined ? {} : { method: 'POST', payload, headers },
    )
    expect(problem).toMatchObject({ status, code })
  },
)

test('an empty body with a JSON header is no body', async () => {
  const headers = { 'content-type': 'application/json' }
  const response = await app.inject({ method: 'POST', url: '/echo', headers, payload: '' })
  expect(response.json()).toEqual({ body: 'nothing' })
})

test('NUL, lone surrogates and prototype keys do not come in', async () => {
  const response = await app.inject({
    method: 'POST',
    url: '/echo',
    headers: { 'content-type': 'application/json' },
    payload: '{"a\\u0000":["\\ud800x"],"__proto__":{"admin":true}}',
  })
  expect(response.json()).toEqual({ body: { 'a\uFFFD': ['\uFFFDx'] } })
})

test('a handler refuses in the same form', async () => {
  thrown = invalidRequest([{ path: 'notifyUrl', message: 'no' }])
  const { problem } = await problemOf('/throw')
  expect(problem).toMatchObject({ status: 400, errors: [{ path: 'notifyUrl', message: 'no' }] })
})
