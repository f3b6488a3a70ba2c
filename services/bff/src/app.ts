import { randomUUID } from 'node:crypto'
import cookie from '@fastify/cookie'
import cors from '@fastify/cors'
import { fastifySSE } from '@fastify/sse'
import { openArtifactStore } from '@holdfast/artifacts'
import { readEvents, type Store, tailRuns, type Wakeups } from '@holdfast/store'
import Fastify, { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify'
import { serializerCompiler, validatorCompiler } from 'fastify-type-provider-zod'
import type { Logger } from 'pino'
import type { Bff, Phase } from './bff.ts'
import type { BffConfig } from './config.ts'
import { streamRegistry } from './event-stream.ts'
import { bffMetrics } from './metrics.ts'
import { authPlugin } from './plugins/auth.ts'
import { cleanInputPlugin } from './plugins/clean-input.ts'
import { docsPlugin } from './plugins/docs.ts'
import { errorsPlugin, sendFailure } from './plugins/errors.ts'
import { phasePlugin } from './plugins/phase.ts'
import { agUiRoutes } from './routes/ag-ui.ts'
import { artifactRoute } from './routes/artifacts.ts'
import { attachmentRoute } from './routes/attachments.ts'
import { cancelRunRoute } from './routes/cancel-run.ts'
import { conversationRoutes } from './routes/conversations.ts'
import { createRunRoute } from './routes/create-run.ts'
import { eventsRoute } from './routes/events.ts'
import { notificationRoutes } from './routes/notifications.ts'
import { operatorRoutes, probeRoutes } from './routes/operations.ts'
import { pageRoute } from './routes/page.ts'
import { runRoutes } from './routes/runs.ts'
import { runHub } from './run-hub.ts'

declare module 'fastify' {
  interface FastifyInstance {
    /** Set by whoever runs the app; a new app serves. */
    phase: Phase
    /** Rejects when something that must run for ever has died. */
    failed: Promise<never>
  }
}

const BODY_BYTES_MAX = 4 << 20
const REQUEST_ID = /^[\w.:-]{1,128}$/

/**
 * The whole HTTP service, not listening yet. Closing it ends every event stream without a terminal
 * event and stops the tail; the store and the wake-ups stay the caller's.
 */
export async function buildApp(parts: {
  store: Store
  wakeups: Wakeups
  config: BffConfig
  log: Logger
}): Promise<FastifyInstance> {
  const bff = assemble(parts)
  const app: FastifyInstance = Fastify({
    loggerInstance: parts.log as FastifyBaseLogger,
    // One line of our own instead, see below.
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: BODY_BYTES_MAX,
    requestTimeout: 120_000,
    routerOptions: { maxParamLength: 1024 },
    // Requests that arrive during a drain are still answered; streams say that they come again.
    return503OnClosing: false,
    forceCloseConnections: 'idle',
    genReqId: ({ headers }) => {
      const given = String(headers['x-request-id'] ?? '')
      return REQUEST_ID.test(given) ? given : randomUUID()
    },
    frameworkErrors: (error, request, reply) => {
      reply.header('x-request-id', request.id)
      return sendFailure(request, reply, error)
    },
  })
  app.decorate('phase', bff.phase)
  app.decorate('failed', bff.hub.failed)
  app.setValidatorCompiler(validatorCompiler)
  app.setSerializerCompiler(serializerCompiler)
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id).header('x-content-type-options', 'nosniff')
  })
  logRequests(app)
  errorsPlugin(app)
  followLife(app, bff)
  await app.register(cors, {
    origin: [...parts.config.corsOrigins],
    credentials: true,
    methods: ['GET', 'POST', 'PATCH', 'DELETE'],
    allowedHeaders: ['authorization', 'content-type', 'last-event-id', 'x-request-id'],
    exposedHeaders: EXPOSED_HEADERS,
    maxAge: 600,
  })
  await app.register(cookie)
  await app.register(fastifySSE)
  await docsPlugin(app)
  pageRoute(app)
  probeRoutes(app, bff)
  await app.register(async (api) => apiRoutes(api, bff))
  return app
}

const EXPOSED_HEADERS = [
  'x-request-id',
  'x-holdfast-run-id',
  'x-holdfast-conversation-id',
  'location',
  'retry-after',
]

function assemble({
  store,
  wakeups,
  config,
  log,
}: Omit<Bff, 'artifacts' | 'hub' | 'streams' | 'metrics' | 'phase'>): Bff {
  const streams = streamRegistry()
  return {
    store,
    artifacts: openArtifactStore(config.artifacts),
    wakeups,
    config,
    log,
    streams,
    phase: { current: 'serving' },
    metrics: bffMetrics(store, log, () => streams.open),
    hub: runHub({
      log: {
        readEvents: (runId, after, limit) => readEvents(store, runId, after, limit),
        tailRuns: (follows, limitPerRun) => tailRuns(store, follows, limitPerRun),
      },
      wakeups,
      pollMs: config.streams.pollMs,
      onError: (err) => log.warn({ err }, 'the tail could not read'),
    }),
  }
}

/** Everything that needs a principal. */
function apiRoutes(api: FastifyInstance, bff: Bff): void {
  api.addHook('onRequest', async (_request, reply) => {
    reply.header('cache-control', 'no-store')
  })
  phasePlugin(api, bff.phase)
  authPlugin(api, bff.config)
  cleanInputPlugin(api)
  createRunRoute(api, bff)
  runRoutes(api, bff)
  artifactRoute(api, bff)
  cancelRunRoute(api, bff)
  eventsRoute(api, bff)
  agUiRoutes(api, bff)
  conversationRoutes(api, bff)
  attachmentRoute(api, bff)
  operatorRoutes(api, bff)
  notificationRoutes(api, bff)
}

function followLife(app: FastifyInstance, { hub, streams, metrics, phase }: Bff): void {
  app.addHook('onReady', () => hub.start())
  app.addHook('preClose', async () => {
    phase.current = 'draining'
    streams.drain()
  })
  app.addHook('onClose', async () => {
    await hub.stop()
    metrics[Symbol.dispose]()
  })
}

/** One line a request, with the route's pattern: a URL may hold what no log should. */
function logRequests(app: FastifyInstance): void {
  app.addHook('onResponse', async (request, reply) => {
    const { method } = request
    const route = request.routeOptions.url ?? 'unknown'
    const ms = Math.round(reply.elapsedTime)
    request.log.info({ method, route, status: reply.statusCode, ms }, 'request')
  })
}
