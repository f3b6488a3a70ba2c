import { CancelReceipt, CancelThreadBody, OnActiveQuery, readAgentInput } from '@holdfast/protocol'
import { HoldfastError } from '@holdfast/std'
import { type CreateRun, cancelThread } from '@holdfast/store'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import * as z from 'zod'
import type { Bff } from '../bff.ts'
import { SSE_ROUTE } from '../event-stream.ts'
import { invalidRequest, parseBody } from '../plugins/errors.ts'
import { acceptRun } from './accept-run.ts'
import { sendCancelOutcome } from './cancel-run.ts'
import { cursorOf, EVENTS_RESPONSE, streamEvents } from './events.ts'

/** Stock AG-UI clients send the whole history each time; only its end counts, but it must fit. */
const BODY_BYTES_MAX = 16 << 20

const AgentParams = z.object({ agent: z.string().min(1).max(256) })

/** AG-UI's own binding: RunAgentInput in, the run's events out on the same response. */
export function agUiRoutes(app: FastifyInstance, bff: Bff): void {
  app.route({
    method: 'POST',
    url: '/ag-ui/:agent',
    ...SSE_ROUTE,
    bodyLimit: BODY_BYTES_MAX,
    schema: {
      summary: 'AG-UI RunAgentInput in, server-sent events out; leaving does not stop the run',
      params: AgentParams,
      querystring: OnActiveQuery,
      body: z.looseObject({}),
      response: EVENTS_RESPONSE,
    },
    validatorCompiler: () => (value: unknown) => ({ value }),
    handler(request, reply) {
      const { agent } = parseBody(AgentParams, request.params)
      return runAgentInput(bff, request, reply, agent)
    },
  })

  app.withTypeProvider<ZodTypeProvider>().route({
    method: 'POST',
    url: '/ag-ui/:agent/cancel',
    schema: {
      summary: "Stop a thread's run",
      params: AgentParams,
      body: CancelThreadBody,
      response: { 200: CancelReceipt, 202: CancelReceipt },
    },
    async handler(request, reply) {
      const { threadId, runId } = request.body
      const { store, principal } = { store: bff.store, principal: request.principal }
      const outcome = await cancelThread(store, principal, threadId, runId ?? undefined)
      return sendCancelOutcome(bff, reply, outcome)
    },
  })
}

/** Accepts what is new in the body and streams the run on this response. */
export async function runAgentInput(
  bff: Bff,
  request: FastifyRequest,
  reply: FastifyReply,
  agent: string | undefined,
): Promise<FastifyReply | undefined> {
  const outcome = readAgentInput(request.body)
  if (outcome.kind === 'invalid') throw invalidRequest(outcome.errors)
  const { input } = outcome
  const { onActive = 'cancel' } = parseBody(OnActiveQuery, request.query)
  const given = cursorOf(request)
  if (bff.streams.draining) {
    throw new HoldfastError('unavailable', 'overloaded', 'This process is about to end.')
  }
  const { kind, run } = await acceptRun(bff, request, {
    clientTurnId: input.runId,
    wireRunId: input.runId,
    threadId: input.threadId,
    message: input.message?.content as CreateRun['message'],
    messageId: input.message?.id,
    resume: input.resume,
    toolResults: input.toolResults,
    ignoreSettled: true,
    onActive,
    tools: input.tools,
    context: input.context,
    ...(agent === undefined ? {} : { agent }),
    ...(isEmptyState(input.state) ? {} : { state: input.state }),
    ...(input.forwardedProps === undefined ? {} : { forwardedProps: input.forwardedProps }),
  })
  reply.header('x-holdfast-run-id', run.runId)
  reply.header('x-holdfast-conversation-id', run.conversationId)
  // A cursor can only be of a log that its client has seen.
  return streamEvents(bff, request, reply, run.runId, kind === 'created' ? 0 : given)
}

/** Stock clients begin with `{}`: a fresh one must not erase what the conversation has. */
function isEmptyState(state: unknown): boolean {
  if (state === undefined || state === null) return true
  return typeof state === 'object' && !Array.isArray(state) && Object.keys(state).length === 0
}
