import { NotificationPage, NotificationsQuery, NotificationView } from '@holdfast/protocol'
import { listNotifications, redriveNotification } from '@holdfast/store'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import * as z from 'zod'
import type { Bff } from '../bff.ts'
import { invalidRequest, notFound } from '../plugins/errors.ts'
import { lookupId } from './ids.ts'
import { requireOperator } from './operations.ts'

/** For operators, who see those of their tenant. */
export function notificationRoutes(app: FastifyInstance, bff: Bff): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.route({
    method: 'GET',
    url: '/notifications',
    schema: {
      summary: 'Notifications and their deliveries, newest first',
      querystring: NotificationsQuery,
      response: { 200: NotificationPage },
    },
    onRequest: async (request) => requireOperator(request),
    async handler(request) {
      const { state, runId, limit, cursor } = request.query
      const page = await listNotifications(bff.store, request.principal.tenantId, {
        limit,
        ...(state === undefined ? {} : { state }),
        ...(runId === undefined ? {} : { runId: lookupId(runId) }),
        ...(cursor === undefined ? {} : { cursor }),
      })
      if (page.kind === 'bad_cursor') {
        throw invalidRequest([{ path: 'cursor', message: 'is none of ours' }])
      }
      return { notifications: page.notifications, nextCursor: page.nextCursor }
    },
  })

  routes.route({
    method: 'POST',
    url: '/notifications/:eventId/redrive',
    schema: {
      summary: 'Make what has not arrived due at once; 200: there was nothing to redrive',
      params: z.object({ eventId: z.string() }),
      response: { 200: NotificationView, 202: NotificationView },
    },
    onRequest: async (request) => requireOperator(request),
    async handler(request, reply) {
      const eventId = lookupId(request.params.eventId)
      const outcome = await redriveNotification(bff.store, request.principal.tenantId, eventId)
      if (!outcome) throw notFound()
      return reply.code(outcome.redriven > 0 ? 202 : 200).send(outcome.notification)
    },
  })
}
