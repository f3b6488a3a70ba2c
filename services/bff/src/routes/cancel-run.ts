import { CancelBody, CancelQuery, CancelReceipt, isTerminal } from '@holdfast/protocol'
import { cancelRun, type Principal, readRun } from '@holdfast/store'
import type { FastifyInstance, FastifyReply } from 'fastify'
import type { ZodTypeProvider } from 'fastify-type-provider-zod'
import * as z from 'zod'
import type { Bff } from '../bff.ts'
import { notFound } from '../plugins/errors.ts'
import { pathId } from './ids.ts'

type CancelOutcome = Awaited<ReturnType<typeof cancelRun>>

/** POST /runs/{id}/cancel: durable when it answers, never an error for being late or repeated. */
export function cancelRunRoute(app: FastifyInstance, bff: Bff): void {
  app.withTypeProvider<ZodTypeProvider>().route({
    method: 'POST',
    url: '/runs/:id/cancel',
    schema: {
      summary: 'Stop a run; ?wait=SECONDS answers when it has ended',
      params: z.object({ id: z.string() }),
      querystring: CancelQuery,
      body: CancelBody,
      response: { 200: CancelReceipt, 202: CancelReceipt },
    },
    async handler(request, reply) {
      const { principal } = request
      const outcome = await cancelRun(bff.store, principal, pathId(request))
      const reason = request.body?.reason
      if (reason && outcome.kind === 'requested')
        request.log.info({ runId: outcome.runId, reason }, 'a run was asked to stop')
      const waitMs = (request.query.wait ?? 0) * 1000
      if (outcome.kind !== 'requested' || waitMs === 0)
        return sendCancelOutcome(bff, reply, outcome)
      announce(bff, outcome)
      const { socket } = request.raw
      const left = new AbortController()
      const onClose = () => left.abort()
      socket.once('close', onClose)
      // The connection goes on to serve other requests.
      const ended = await untilEnded(bff, principal, outcome.runId, waitMs, left.signal).finally(
        () => socket.off('close', onClose),
      )
      return ended ? sendReceipt(reply, 200, ended) : sendReceipt(reply, 202, outcome)
    },
  })
}

/** 202 for a run that was unfinished, also when this call could end it; 200 with the final state of one that was over. */
export function sendCancelOutcome(bff: Bff, reply: FastifyReply, outcome: CancelOutcome) {
  if (outcome.kind === 'not_found') throw notFound()
  announce(bff, outcome)
  return sendReceipt(reply, outcome.kind === 'ended' ? 200 : 202, outcome)
}

function sendReceipt(
  reply: FastifyReply,
  status: 200 | 202,
  { runId, state, cancelRequestedAt }: CancelReceipt,
) {
  return reply.code(status).send({ runId, state, cancelRequestedAt })
}

function announce({ wakeups }: Bff, outcome: Exclude<CancelOutcome, { kind: 'not_found' }>): void {
  if (!isTerminal(outcome.state)) {
    wakeups.publish('cancel', [outcome.runId])
    return
  }
  wakeups.publish('events', [outcome.runId])
  if (outcome.nextRunId !== null) wakeups.publish('queue', [outcome.nextRunId])
}

/** The run once it ended, or undefined when it did not in time or the caller left. */
async function untilEnded(
  bff: Bff,
  principal: Principal,
  runId: string,
  waitMs: number,
  signal: AbortSignal,
): Promise<CancelReceipt | undefined> {
  const untilMs = performance.now() + waitMs
  const first = await readRun(bff.store, principal, runId)
  if (!first) return undefined
  let { sequence } = first
  using follower = bff.hub.follow(runId, sequence)
  let run: typeof first | null = first
  while (run && !isTerminal(run.state) && performance.now() < untilMs && !signal.aborted) {
    const batch = await follower.next(sequence, untilMs - performance.now(), signal)
    if (batch.kind === 'events') sequence = batch.events.at(-1)?.sequence ?? sequence
    run = await readRun(bff.store, principal, runId)
  }
  return run && isTerminal(run.state) ? run : undefined
}
