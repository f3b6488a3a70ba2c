import { PROBLEMS, type Problem, type ProblemCode } from '@holdfast/protocol'
import { asError, type FailureKind, HoldfastError } from '@holdfast/std'
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod'
import type { z } from 'zod'

/** The only table from kinds of failure to HTTP. */
const STATUS = {
  invalid: 400,
  unauthorized: 401,
  not_found: 404,
  conflict: 409,
  fenced: 409,
  gone: 410,
  too_large: 413,
  unsupported_media: 415,
  unprocessable: 422,
  rate_limited: 429,
  internal: 500,
  not_implemented: 501,
  unavailable: 503,
} as const satisfies Record<FailureKind, number>

/** What Fastify itself refuses before a handler runs. */
const FRAMEWORK_CODES: Readonly<Record<string, [status: number, code: ProblemCode]>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: [413, 'body_too_large'],
  FST_ERR_CTP_INVALID_MEDIA_TYPE: [415, 'unsupported_media_type'],
}

const RETRY_AFTER_SECONDS = 1

/** Every refusal and failure leaves as `application/problem+json`; what a 5xx says stays in the log. */
export function errorsPlugin(app: FastifyInstance): void {
  app.setErrorHandler((error: unknown, request, reply) => sendFailure(request, reply, error))
  app.setNotFoundHandler((_request, reply) =>
    sendProblem(reply, 404, 'not_found', 'There is no such route.'),
  )
}

export function sendFailure(request: FastifyRequest, reply: FastifyReply, error: unknown) {
  if (error instanceof HoldfastError) {
    const status = STATUS[error.kind]
    const code = codeOf(error)
    if (status < 500 || error.kind === 'not_implemented') {
      return sendProblem(reply, status, code, error.message, error.details)
    }
    request.log.warn({ err: error }, 'a request could not be served')
    return sendProblem(reply, status, code, `${PROBLEMS[code]}.`)
  }
  if (hasZodFastifySchemaValidationErrors(error)) {
    const errors = error.validation.map(({ instancePath, message }) => ({
      path: instancePath.slice(1).replaceAll('/', '.'),
      message: message ?? 'not valid',
    }))
    return sendProblem(reply, 400, 'invalid_request', 'The request is malformed.', { errors })
  }
  const { code, statusCode } = error as Partial<FastifyError>
  const known = FRAMEWORK_CODES[code ?? '']
  if (known) {
    if (known[1] === 'body_too_large') discardBody(request, reply)
    return sendProblem(reply, known[0], known[1], `${PROBLEMS[known[1]]}.`)
  }
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500) {
    const message = asError(error).message
    return sendProblem(reply, 400, 'invalid_request', message, { errors: [{ path: '', message }] })
  }
  request.log.error({ err: error }, 'a request failed')
  return sendProblem(reply, 500, 'internal', `${PROBLEMS.internal}.`)
}

/** Closing a connection whose caller is still sending would lose the answer: the rest is thrown away instead. */
function discardBody(request: FastifyRequest, reply: FastifyReply): void {
  reply.removeHeader('connection')
  request.raw.resume()
}

export function sendProblem(
  reply: FastifyReply,
  status: number,
  code: ProblemCode,
  detail: string,
  more: Readonly<Record<string, unknown>> = {},
) {
  if (status === 401) reply.header('www-authenticate', 'Bearer')
  if (status === 429 || status === 503) reply.header('retry-after', RETRY_AFTER_SECONDS)
  const problem: Problem = {
    ...more,
    type: `urn:holdfast:problem:${code}`,
    title: PROBLEMS[code],
    status,
    detail,
    code,
  }
  return reply
    .code(status)
    .header('cache-control', 'no-store')
    .type('application/problem+json')
    .serializer(JSON.stringify)
    .send(problem)
}

/** A body that is checked in the handler, because two shapes share the route. */
export function parseBody<T extends z.ZodType>(schema: T, body: unknown): z.output<T> {
  const parsed = schema.safeParse(body)
  if (parsed.success) return parsed.data
  throw invalidRequest(
    parsed.error.issues.map(({ path, message }) => ({ path: path.join('.'), message })),
  )
}

export function invalidRequest(errors: readonly { path: string; message: string }[]) {
  return new HoldfastError('invalid', 'invalid_request', 'The request is malformed.', {
    details: { errors },
  })
}

export function notFound() {
  return new HoldfastError('not_found', 'not_found', `${PROBLEMS.not_found}.`)
}

function codeOf(error: HoldfastError): ProblemCode {
  return error.code in PROBLEMS ? (error.code as ProblemCode) : 'internal'
}
