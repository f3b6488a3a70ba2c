import { comment, EventsQuery, frame, isTerminal, parseCursor, retry } from '@holdfast/protocol'
import { HoldfastError } from '@holdfast/std'
import { type Principal, readHead, readPrelude } from '@holdfast/store'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import * as z from 'zod'
import type { Bff } from '../bff.ts'
import { SSE_ROUTE, serveEventStream } from '../event-stream.ts'
import { invalidRequest, notFound, sendFailure } from '../plugins/errors.ts'
import { retryWithJitter, type Subscription, sendLog } from '../subscription.ts'
import { pathId } from './ids.ts'

const HELLO = retry(1000) + comment('')

/** What the OpenAPI document says of an answer that carries events. */
export const EVENTS_RESPONSE = {
  200: {
    description: 'AG-UI 1.0 events, one a frame',
    content: { 'text/event-stream': { schema: z.string() } },
  },
}

const NOTHING_FOLLOWS = z.null().describe('The run has ended, and the cursor is its last event')

/** GET /runs/{id}/events: the log of a run from a cursor, or a prelude and what follows it. */
export function eventsRoute(app: FastifyInstance, bff: Bff): void {
  app.route({
    method: 'GET',
    url: '/runs/:id/events',
    ...SSE_ROUTE,
    schema: {
      summary: "A run's events as server-sent events, from Last-Event-ID or ?after=",
      params: z.object({ id: z.string() }),
      querystring: EventsQuery,
      headers: z.object({ 'last-event-id': z.string().optional() }),
      response: { ...EVENTS_RESPONSE, 204: NOTHING_FOLLOWS },
    },
    handler: (request, reply) =>
      streamEvents(bff, request, reply, pathId(request), cursorOf(request)),
    // EventSource gives up for ever on an error status, so what is temporary must not be one.
    errorHandler(error, request, reply) {
      const temporary =
        error instanceof HoldfastError && /^(unavailable|rate_limited)$/.test(error.kind)
      if (!temporary) return sendFailure(request, reply, error)
      request.log.warn({ err: error }, 'a stream has to come again')
      return comeAgain(reply)
    },
  })
}

/**
 * The client's cursor: `Last-Event-ID`, else `after`; undefined when there is neither.
 * @throws HoldfastError invalid_request when it is not a whole number
 */
export function cursorOf(request: FastifyRequest): number | undefined {
  const header = request.headers['last-event-id']
  const { after } = request.query as { after?: string }
  const given = header === undefined || header === '' ? after : String(header)
  if (given === undefined || given === '') return undefined
  const cursor = parseCursor(given)
  if (cursor !== null) return cursor
  throw invalidRequest([{ path: header ? 'Last-Event-ID' : 'after', message: 'is no sequence' }])
}

type Reader = { runId: string; principal: Principal; tokenExpiresAtMs: number | undefined }

/** Answers with the events > `cursor`, or with a prelude and what follows it when there is none. */
export async function streamEvents(
  bff: Bff,
  request: FastifyRequest,
  reply: FastifyReply,
  runId: string,
  cursor: number | undefined,
): Promise<FastifyReply | undefined> {
  if (bff.streams.draining || bff.streams.open >= bff.config.streams.streamsMax) {
    return comeAgain(reply)
  }
  const { principal, tokenExpiresAtMs } = request
  const reader = { runId, principal, tokenExpiresAtMs }
  if (cursor !== undefined) return streamSuffix(bff, reply, reader, cursor)
  await streamFromPrelude(bff, reply, reader)
  return undefined
}

async function streamFromPrelude(bff: Bff, reply: FastifyReply, reader: Reader) {
  const { runId, principal } = reader
  const prelude = await bff.hub.reads(() => readPrelude(bff.store, principal, runId))
  if (!prelude) throw notFound()
  const { events, sequence, ended } = prelude
  // Only the last frame moves the cursor: a prelude that was cut is started anew.
  const frames = events.map((event, index) =>
    frame(index === events.length - 1 ? sequence : null, JSON.stringify(event)),
  )
  using follower = bff.hub.follow(runId, sequence)
  await serve(bff, reply, async (stream) => {
    if (!(await stream.write(frames.join(''))) || ended) return
    await sendLog(stream, follower, subscriptionOf(bff, reader, sequence))
  })
}

async function streamSuffix(bff: Bff, reply: FastifyReply, reader: Reader, after: number) {
  const { runId, principal } = reader
  const head = await bff.hub.reads(() => readHead(bff.store, principal, runId))
  if (!head) throw notFound()
  if (after > head.sequence) {
    throw new HoldfastError('conflict', 'cursor_ahead', 'The log is not that long.')
  }
  if (after === head.sequence && isTerminal(head.state)) return reply.code(204).send()
  using follower = bff.hub.follow(runId, head.sequence)
  if (after < head.sequence) {
    const first = await follower.next(after, 0, new AbortController().signal)
    if (first.kind === 'gone') {
      throw new HoldfastError('gone', 'cursor_gone', 'The log before the floor was pruned.', {
        details: { floor: first.floor },
      })
    }
  }
  await serve(bff, reply, (stream) => sendLog(stream, follower, subscriptionOf(bff, reader, after)))
  return undefined
}

function subscriptionOf(bff: Bff, reader: Reader, after: number): Subscription {
  return {
    after,
    timing: bff.config.streams,
    stillAllowed: () => stillAllowed(bff, reader),
    delivered: bff.metrics.delivered,
  }
}

/** False when the run was deleted or the token ended. A database that is away decides nothing. */
async function stillAllowed(bff: Bff, { runId, principal, tokenExpiresAtMs }: Reader) {
  if (tokenExpiresAtMs !== undefined && Date.now() >= tokenExpiresAtMs) return false
  try {
    return (await bff.hub.reads(() => readHead(bff.store, principal, runId))) !== null
  } catch (error) {
    bff.log.warn({ err: error, runId }, 'a subscription could not be re-authorised')
    return true
  }
}

function serve(bff: Bff, reply: FastifyReply, body: Parameters<typeof serveEventStream>[3]) {
  const { streams: registry, config, log } = bff
  return serveEventStream(reply, { registry, drainMs: config.streams.drainMs }, HELLO, (stream) =>
    body(stream).catch(async (err: unknown) => {
      // The head is out: all that can be said now is to come again.
      log.warn({ err }, 'a stream ended early')
      await stream.write(retryWithJitter())
    }),
  )
}

function comeAgain(reply: FastifyReply) {
  return reply
    .code(200)
    .header('content-type', 'text/event-stream; charset=utf-8')
    .header('cache-control', 'no-store, no-transform')
    .header('x-accel-buffering', 'no')
    .send(retryWithJitter())
}
