import type { FastifyRequest } from 'fastify'
import { notFound } from '../plugins/errors.ts'

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

/** An id that nothing has: what cannot be one of our ids is as unknown as any other. */
const NOBODY = '00000000-0000-0000-0000-000000000000'

/** The id in the path, lower case. What is no UUID looks like an unknown one: 404. */
export function pathId(request: FastifyRequest): string {
  const id = (request.params as { id?: string }).id?.toLowerCase() ?? ''
  if (!UUID.test(id)) throw notFound()
  return id
}

/** An id from a body or a query, such that the store may be asked for it. */
export function lookupId(id: string): string {
  const lower = id.toLowerCase()
  return UUID.test(lower) ? lower : NOBODY
}
