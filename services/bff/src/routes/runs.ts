import {
  ListRunsQuery,
  RunPage,
  RunView,
  TimelineView,
  WhyView,
  whyInWords,
} from '@holdfast/protocol'
import {
  listRuns,
  readRun,
  readTimeline,
  type RunView as StoredRun,
  whyNotFurther,
} from '@holdfast/store'
import type { FastifyInstance } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import * as z from 'zod'
import type { Bff } from '../bff.ts'
import { invalidRequest, notFound } from '../plugins/errors.ts'
import { lookupId, pathId } from './ids.ts'

const Params = z.object({ id: z.string() })

/** Reading runs. */
export function runRoutes(app: FastifyInstance, bff: Bff): void {
  const routes = app.withTypeProvider<ZodTypeProvider>()

  routes.route({
    method: 'GET',
    url: '/runs/:id',
    schema: { summary: 'One run', params: Params, response: { 200: RunView } },
    async handler(request) {
      const run = await readRun(bff.store, request.principal, pathId(request))
      if (!run) throw notFound()
      return viewOf(run)
    },
  })

  routes.route({
    method: 'GET',
    url: '/runs',
    schema: {
      summary: 'Runs, newest first',
      querystring: ListRunsQuery,
      response: { 200: RunPage },
    },
    async handler(request) {
      const { all, conversationId, state, agent, cursor, limit } = request.query
      const everybody = all === 'true'
      if (everybody && request.principal.role !== 'operator') throw notFound()
      const page = await listRuns(bff.store, request.principal, {
        limit,
        all: everybody,
        ...(state === undefined ? {} : { state }),
        ...(agent === undefined ? {} : { agent }),
        ...(cursor === undefined ? {} : { cursor }),
        ...(conversationId === undefined ? {} : { conversationId: lookupId(conversationId) }),
      })
      if (page.kind === 'bad_cursor') {
        throw invalidRequest([{ path: 'cursor', message: 'is none of ours' }])
      }
      return { runs: page.runs.map(viewOf), nextCursor: page.nextCursor }
    },
  })

  routes.route({
    method: 'GET',
    url: '/runs/:id/why',
    schema: {
      summary: 'Why it is not further: in words for people, and as reasons with their facts',
      params: Params,
      response: { 200: WhyView },
    },
    async handler(request) {
      const runId = pathId(request)
      const found = await whyNotFurther(bff.store, request.principal, runId)
      if (!found) throw notFound()
      const { state, reasons } = found
      return { runId, state, why: whyInWords(reasons), reasons }
    },
  })

  routes.route({
    method: 'GET',
    url: '/runs/:id/timeline',
    schema: {
      summary: 'What happened to it: attempts, their parts, lease gaps, refused writes',
      params: Params,
      response: { 200: TimelineView },
    },
    async handler(request) {
      const found = await readTimeline(bff.store, request.principal, pathId(request))
      if (!found) throw notFound()
      return found
    },
  })
}

function viewOf(run: StoredRun): RunView {
  const artifacts = run.artifacts.map(({ name, ...artifact }) => ({
    name,
    ...artifact,
    url: `/runs/${run.runId}/artifacts/${encodeURIComponent(name)}`,
  }))
  return { ...run, artifacts }
}
