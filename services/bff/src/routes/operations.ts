import { Readiness, RunnerPage } from '@holdfast/protocol'
import { asError } from '@holdfast/std'
import { listRunners, readiness } from '@holdfast/store'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import * as z from 'zod'
import type { Bff } from '../bff.ts'
import { notFound } from '../plugins/errors.ts'

/** With fewer days of partitions ahead, an operator must look. */
const PARTITION_DAYS_MIN = 2

const METRICS_RESPONSE = {
  200: {
    description: 'Prometheus text',
    content: { 'text/plain': { schema: z.string() } },
  },
}

/** What orchestrators and scrapers ask; no token needed. */
export function probeRoutes(app: FastifyInstance, bff: Bff): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.route({
    method: 'GET',
    url: '/healthz',
    schema: {
      summary: 'The process is alive',
      response: { 200: z.object({ status: z.literal('alive') }) },
    },
    handler: () => ({ status: 'alive' as const }),
  })

  routes.route({
    method: 'GET',
    url: '/readyz',
    schema: {
      summary: 'Requests can be served',
      response: { 200: Readiness, 503: Readiness },
    },
    async handler(_request, reply) {
      const reasons = await reasonsAgainst(bff)
      const status = reasons.length === 0 ? 'ready' : 'not_ready'
      return reply
        .code(status === 'ready' ? 200 : 503)
        .header('cache-control', 'no-store')
        .send({ status, reasons })
    },
  })

  routes.route({
    method: 'GET',
    url: '/metrics',
    schema: { summary: "This process's figures, for Prometheus", response: METRICS_RESPONSE },
    async handler(_request, reply) {
      return reply.type(bff.metrics.contentType).send(await bff.metrics.render())
    },
  })
}

/** For operators; everybody else finds nothing here. */
export function operatorRoutes(app: FastifyInstance, bff: Bff): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.route({
    method: 'GET',
    url: '/runners',
    schema: { summary: 'Runner processes', response: { 200: RunnerPage } },
    async handler(request) {
      requireOperator(request)
      return { runners: await listRunners(bff.store) }
    },
  })
}

/** Everybody else finds nothing here. */
export function requireOperator(request: FastifyRequest): void {
  if (request.principal.role !== 'operator') throw notFound()
}

async function reasonsAgainst({ phase, store, log }: Bff): Promise<string[]> {
  if (phase.current === 'draining') return ['draining']
  try {
    const { schema, partitionsAheadDays } = await readiness(store)
    if (schema !== 'current') return [`schema ${schema}`]
    const reasons: string[] = phase.current === 'waiting' ? ['starting'] : []
    return partitionsAheadDays < PARTITION_DAYS_MIN ? [...reasons, 'partitions run out'] : reasons
  } catch (error) {
    log.warn({ err: asError(error) }, 'not ready: the database does not answer')
    return ['database unreachable']
  }
}
