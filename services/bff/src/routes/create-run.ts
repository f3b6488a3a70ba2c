import {
  asEndpoint,
  CreateRunBody,
  isAgentInput,
  isNotifyAllowed,
  type RunReceipt,
  RunReceipt as RunReceiptSchema,
  type ToolResult,
} from '@holdfast/protocol'
import type { CreateRun, RunReceipt as StoredReceipt } from '@holdfast/store'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import type { Bff } from '../bff.ts'
import { isLoopback } from '../config.ts'
import { SSE_ROUTE } from '../event-stream.ts'
import { invalidRequest, parseBody } from '../plugins/errors.ts'
import { acceptRun } from './accept-run.ts'
import { runAgentInput } from './ag-ui.ts'
import { lookupId } from './ids.ts'

/** POST /runs, with our own body or with AG-UI's. */
export function createRunRoute(app: FastifyInstance, bff: Bff): void {
  app.route({
    method: 'POST',
    url: '/runs',
    ...SSE_ROUTE,
    schema: {
      summary: 'Accept a message and start a run; AG-UI RunAgentInput is taken as well',
      body: CreateRunBody,
      response: { 200: RunReceiptSchema, 202: RunReceiptSchema, 303: RunReceiptSchema },
    },
    // Two bodies share the route: the handler looks which one came.
    validatorCompiler: () => (value: unknown) => ({ value }),
    async handler(request, reply) {
      if (isAgentInput(request.body)) return runAgentInput(bff, request, reply, undefined)
      const body = parseBody(CreateRunBody, request.body)
      const { kind, run } = await acceptRun(bff, request, requestOf(bff, body))
      return sendReceipt(request, reply, kind, receiptOf(run))
    },
  })
}

function requestOf(bff: Bff, body: CreateRunBody): CreateRun {
  checkAnswers(body)
  return {
    clientTurnId: body.clientTurnId,
    onActive: body.onActive ?? 'reject',
    ...(body.message == null ? {} : { message: body.message as CreateRun['message'] }),
    ...(body.resume?.length ? { resume: body.resume as NonNullable<CreateRun['resume']> } : {}),
    ...(body.toolResults?.length ? { toolResults: toolResultsOf(body.toolResults) } : {}),
    ...(body.replaces == null ? {} : { replaces: lookupId(body.replaces) }),
    ...(body.conversationId == null ? {} : { conversationId: lookupId(body.conversationId) }),
    ...(body.agent == null ? {} : { agent: body.agent }),
    ...(body.notifyUrl == null ? {} : { notifyUrl: notifyEndpoint(bff, body.notifyUrl) }),
    ...(body.deadlineMs == null ? {} : { deadlineMs: body.deadlineMs }),
    ...(body.context == null ? {} : { context: body.context }),
    ...(body.state == null ? {} : { state: body.state }),
    ...(body.tools == null ? {} : { tools: body.tools as NonNullable<CreateRun['tools']> }),
    ...(body.forwardedProps == null ? {} : { forwardedProps: body.forwardedProps }),
  }
}

/** What a turn answers stands in a conversation, and a turn that replaces another one has its own message. */
function checkAnswers(body: CreateRunBody): void {
  const answers = (['resume', 'toolResults'] as const).find((field) => body[field]?.length)
  const errors = [
    ...(body.message == null && !answers ? [{ path: 'message', message: 'is required' }] : []),
    ...(answers && body.conversationId == null
      ? [{ path: 'conversationId', message: `is required with ${answers}` }]
      : []),
    ...(answers && body.replaces != null
      ? [{ path: 'replaces', message: `does not go together with ${answers}` }]
      : []),
  ]
  if (errors.length > 0) throw invalidRequest(errors)
}

function toolResultsOf(
  given: NonNullable<CreateRunBody['toolResults']>,
): NonNullable<CreateRun['toolResults']> {
  return given.map(({ toolCallId, content, error }) => ({
    toolCallId,
    content: content as ToolResult['content'],
    error: error ?? undefined,
  }))
}

/** The URL in one spelling, so that an endpoint which is also configured is told once. */
function notifyEndpoint({ config }: Bff, notifyUrl: string): string {
  const endpoint = asEndpoint(notifyUrl)
  const isOwnMachine =
    config.auth.mode === 'open' && isLoopback(URL.parse(notifyUrl)?.hostname ?? '')
  if (endpoint && (isOwnMachine || isNotifyAllowed(endpoint, config.notifyAllow))) return endpoint
  const message = 'must be an http(s) URL without credentials whose host NOTIFY_ALLOW names'
  throw invalidRequest([{ path: 'notifyUrl', message }])
}

function receiptOf({ runId, conversationId, state, sequence }: StoredReceipt): RunReceipt {
  const self = `/runs/${runId}`
  const links = { self, events: `${self}/events`, cancel: `${self}/cancel` }
  return { runId, conversationId, state, sequence, links }
}

function sendReceipt(
  request: FastifyRequest,
  reply: FastifyReply,
  kind: 'created' | 'repeated',
  receipt: RunReceipt,
) {
  reply.header('x-holdfast-run-id', receipt.runId)
  reply.header('x-holdfast-conversation-id', receipt.conversationId)
  if (wantsEvents(request))
    return reply.code(303).header('location', receipt.links.events).send(receipt)
  const status = kind === 'created' ? 202 : 200
  return reply.code(status).header('location', receipt.links.self).send(receipt)
}

function wantsEvents(request: FastifyRequest): boolean {
  const ranges = (request.headers.accept ?? '').toLowerCase().split(',')
  return ranges.some((range) => /^\s*text\/event-stream\s*(;(?!.*q=0(\.0*)?\s*$).*)?$/.test(range))
}
