import { readAttachment } from '@holdfast/store'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import * as z from 'zod'
import type { Bff } from '../bff.ts'
import { notFound } from '../plugins/errors.ts'
import { FILE_RESPONSE } from './artifacts.ts'
import { contentDisposition } from './content-disposition.ts'
import { pathId } from './ids.ts'

const DIGEST = /^[0-9a-f]{64}$/

/**
 * What a browser may show in its own place because it runs nothing; all else is saved. Not SVG and what is XML by
 * another name: those are documents with scripts.
 */
const SHOWN =
  /^(?:(?:image|audio|video)\/(?!svg|[^;]*xml)[^;]+|application\/pdf|text\/plain)(?: *;.*)?$/i

const Params = z.object({ id: z.string(), attachmentId: z.string() })

/** Bytes that came with a message, under the URL that stands in its place: for whoever may see the conversation. */
export function attachmentRoute(app: FastifyInstance, bff: Bff): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  const url = '/conversations/:id/attachments/:attachmentId'

  async function serve(
    request: FastifyRequest<{ Params: z.infer<typeof Params> }>,
    reply: FastifyReply,
  ) {
    const { attachmentId } = request.params
    if (!DIGEST.test(attachmentId)) throw notFound()
    const etag = `"${attachmentId}"`
    // Its name is what it contains, so what a reader has of it is right: if it may still be seen.
    const known = namesTag(request.headers['if-none-match'], etag)
    const withBytes = request.method === 'GET' && !known
    const conversationId = pathId(request)
    const attachment = await readAttachment(
      bff.store,
      request.principal,
      conversationId,
      attachmentId,
      { withBytes },
    )
    if (!attachment) throw notFound()
    reply
      .header('etag', etag)
      .header('cache-control', 'private, max-age=31536000, immutable')
      // A browser that somebody else uses now has to ask again.
      .header('vary', 'origin, authorization, cookie')
    if (known) return reply.code(304).send()
    const { mediaType, name, size, bytes } = attachment
    const shown = SHOWN.test(mediaType) ? 'inline' : 'attachment'
    return reply
      .header('content-type', mediaType)
      .header('content-length', size)
      .header('content-disposition', contentDisposition(shown, name))
      .header('content-security-policy', 'sandbox')
      .send(bytes ?? undefined)
  }

  const schema = {
    summary: 'What came with a message, as its content parts name it',
    params: Params,
    response: FILE_RESPONSE,
  }
  // The HEAD that Fastify would make reads the bytes to throw them away.
  routes.route({ method: 'GET', url, exposeHeadRoute: false, schema, handler: serve })
  routes.route({ method: 'HEAD', url, schema: { ...schema, hide: true }, handler: serve })
}

function namesTag(header: string | undefined, etag: string): boolean {
  const tags = header?.split(',').map((tag) => tag.trim().replace(/^W\//, '')) ?? []
  return tags.includes(etag) || tags.includes('*')
}
