import { sanitize } from '@holdfast/protocol'
import type { FastifyInstance } from 'fastify'
import { invalidRequest } from './errors.ts'

/** Deeper JSON than this is an attack on recursion, not a request. */
const DEPTH_MAX = 200

/**
 * JSON bodies (an empty one counts as none, since many clients send the header without a body),
 * with NUL and lone surrogates replaced in everything a caller sends, before anything looks at it.
 */
export function cleanInputPlugin(app: FastifyInstance): void {
  const parseJson = app.getDefaultJsonParser('remove', 'remove')
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body, done) =>
    body.length === 0 ? done(null, undefined) : parseJson(request, body as string, done),
  )
  app.addHook('preValidation', async (request) => {
    if (!isShallow(request.body)) {
      throw invalidRequest([{ path: '', message: `nested deeper than ${DEPTH_MAX}` }])
    }
    request.body = sanitize(request.body)
    request.query = sanitize(request.query)
    request.params = sanitize(request.params)
  })
}

function isShallow(value: unknown): boolean {
  let level: unknown[] = [value]
  for (let depth = 0; depth <= DEPTH_MAX; depth += 1) {
    level = level.flatMap((item) =>
      typeof item === 'object' && item !== null ? Object.values(item) : [],
    )
    if (level.length === 0) return true
  }
  return false
}
