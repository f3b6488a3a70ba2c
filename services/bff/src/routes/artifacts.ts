import { HoldfastError } from '@holdfast/std'
import { readArtifact } from '@holdfast/store'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import * as z from 'zod'
import type { Bff } from '../bff.ts'
import { notFound } from '../plugins/errors.ts'
import { contentDisposition } from './content-disposition.ts'
import { pathId } from './ids.ts'

/** A reader that takes nothing for so long is cut; the file is not held open for it. */
const READER_IDLE_MS = 60_000

/** What the OpenAPI document says of an answer that is a file. */
export const FILE_RESPONSE = {
  200: {
    description: 'The bytes, under the media type that they came with',
    content: { '*/*': { schema: z.unknown().meta({ type: 'string', format: 'binary' }) } },
  },
}

/** Files that runs left behind. What they contain is the agent's, so a browser saves it and never shows it as ours. */
export function artifactRoute(app: FastifyInstance, bff: Bff): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  const url = '/runs/:id/artifacts/:name'
  const params = z.object({ id: z.string(), name: z.string() })

  async function serve(request: FastifyRequest, reply: FastifyReply, name: string) {
    const artifact = await readArtifact(bff.store, request.principal, pathId(request), name)
    if (!artifact) throw notFound()
    const file = await bff.artifacts.open(artifact.path)
    if (!file) throw new HoldfastError('gone', 'artifact_gone', 'The file is not there any more.')
    reply
      .type(artifact.mediaType)
      .header('content-length', file.bytes)
      .header('content-disposition', contentDisposition('attachment', name))
      .header('content-security-policy', 'sandbox')
    return file.body
  }

  routes.route({
    method: 'GET',
    url,
    // The one that Fastify would make reads the whole file to throw it away.
    exposeHeadRoute: false,
    schema: {
      summary: 'A file of a run, as `artifacts` of the run lists it',
      params,
      response: FILE_RESPONSE,
    },
    async handler(request, reply) {
      const body = await serve(request, reply, request.params.name)
      reply.raw.setTimeout(READER_IDLE_MS)
      return reply.send(body)
    },
  })

  routes.route({
    method: 'HEAD',
    url,
    schema: { hide: true, params },
    async handler(request, reply) {
      const body = await serve(request, reply, request.params.name)
      body.destroy()
      return reply.send()
    },
  })
}
