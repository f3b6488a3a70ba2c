import {
  ConversationPage,
  ConversationSummary,
  ConversationView,
  DeleteConversationQuery,
  ListConversationsQuery,
  RenameBody,
} from '@holdfast/protocol'
import { HoldfastError } from '@holdfast/std'
import {
  deleteConversation,
  listConversations,
  readConversation,
  renameConversation,
} from '@holdfast/store'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import * as z from 'zod'
import type { Bff } from '../bff.ts'
import { invalidRequest, notFound } from '../plugins/errors.ts'
import { pathId } from './ids.ts'

const Params = z.object({ id: z.string() })

export function conversationRoutes(app: FastifyInstance, bff: Bff): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()
  const { store } = bff

  routes.route({
    method: 'GET',
    url: '/conversations',
    schema: {
      summary: 'Conversations, newest first',
      querystring: ListConversationsQuery,
      response: { 200: ConversationPage },
    },
    async handler(request) {
      const { limit, cursor } = request.query
      const filter = { limit, ...(cursor === undefined ? {} : { cursor }) }
      const page = await listConversations(store, request.principal, filter)
      if (page.kind === 'bad_cursor') {
        throw invalidRequest([{ path: 'cursor', message: 'is none of ours' }])
      }
      return page
    },
  })

  routes.route({
    method: 'GET',
    url: '/conversations/:id',
    schema: {
      summary: 'One snapshot; continue it with events?after={activeRun.sequence}',
      params: Params,
      response: { 200: ConversationView },
    },
    async handler(request) {
      const conversation = await readConversation(store, request.principal, pathId(request))
      if (!conversation) throw notFound()
      return { ...conversation, state: conversation.state ?? null }
    },
  })

  routes.route({
    method: 'PATCH',
    url: '/conversations/:id',
    schema: {
      summary: 'Rename',
      params: Params,
      body: RenameBody,
      response: { 200: ConversationSummary },
    },
    async handler(request) {
      const { title } = request.body
      const summary = await renameConversation(store, request.principal, pathId(request), title)
      if (!summary) throw notFound()
      return summary
    },
  })

  routes.route({
    method: 'DELETE',
    url: '/conversations/:id',
    schema: {
      summary: 'Delete; ?cancel=true also with unfinished runs',
      params: Params,
      querystring: DeleteConversationQuery,
      response: { 204: z.null() },
    },
    async handler(request, reply) {
      const cancel = request.query.cancel === 'true'
      const id = pathId(request)
      const outcome = await deleteConversation(store, request.principal, id, { cancel })
      if (outcome.kind === 'not_found') throw notFound()
      if (outcome.kind === 'conversation_busy') {
        throw new HoldfastError('conflict', outcome.kind, 'A run of it is not finished.', {
          details: { activeRunId: outcome.activeRunId },
        })
      }
      bff.wakeups.publish('cancel', outcome.cancelled)
      return reply.code(204).send(null)
    },
  })
}
