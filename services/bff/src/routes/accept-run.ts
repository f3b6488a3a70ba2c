import { LIMITS } from '@holdfast/protocol'
import { HoldfastError } from '@holdfast/std'
import { type CreateRun, createRun } from '@holdfast/store'
import type { FastifyRequest } from 'fastify'
import type { Bff } from '../bff.ts'
import { invalidRequest, notFound } from '../plugins/errors.ts'

/**
 * Stores the run and wakes the runners.
 * @throws HoldfastError for every outcome but created and repeated
 */
export async function acceptRun(bff: Bff, request: FastifyRequest, create: CreateRun) {
  if (broughtBytes(create) > LIMITS.messageBytesMax) {
    throw new HoldfastError('too_large', 'message_too_large', 'A message has at most 1 MiB.')
  }
  const outcome = await createRun(bff.store, request.principal, create)
  switch (outcome.kind) {
    case 'created':
      bff.wakeups.publish('queue', [outcome.run.runId])
      bff.wakeups.publish('cancel', outcome.cancelled)
      return { kind: outcome.kind, run: outcome.run }
    case 'repeated':
      return { kind: outcome.kind, run: outcome.run }
    case 'conversation_busy':
      throw new HoldfastError('conflict', outcome.kind, 'Another run of it is not finished.', {
        details: { activeRunId: outcome.activeRunId },
      })
    case 'interrupt_closed':
      throw new HoldfastError(
        'conflict',
        outcome.kind,
        'This was answered before, has expired, or was never asked.',
        { details: { ids: outcome.ids } },
      )
    case 'answers_incomplete':
      throw new HoldfastError(
        'unprocessable',
        outcome.kind,
        'Everything that is pending is answered together, each once.',
        { details: { ids: outcome.ids } },
      )
    case 'turn_mismatch':
      throw new HoldfastError('unprocessable', outcome.kind, 'This turn had another body before.')
    case 'turn_gone':
      throw new HoldfastError('gone', outcome.kind, 'The run of this turn was deleted.')
    case 'unknown_agent':
      throw new HoldfastError('unprocessable', outcome.kind, 'No runner ever offered this agent.')
    case 'invalid_content':
      throw invalidRequest(outcome.errors)
    case 'unknown_attachment':
      throw new HoldfastError(
        'unprocessable',
        outcome.kind,
        'A part refers to an attachment that this conversation does not have.',
      )
    case 'conversation_full':
      throw new HoldfastError('too_large', outcome.kind, 'The conversation can hold no more.')
    case 'message_id_taken':
      throw invalidRequest([{ path: 'messages', message: 'an id of them names another message' }])
    case 'not_found':
      throw notFound()
  }
}

/** A text counts as itself, content parts and payloads as the JSON that they are. */
function broughtBytes({ message, toolResults = [], resume = [] }: CreateRun): number {
  const brought = [message ?? '', ...toolResults.map(({ content }) => content), ...resume]
  return brought.reduce<number>(
    (sum, each) => sum + Buffer.byteLength(typeof each === 'string' ? each : JSON.stringify(each)),
    0,
  )
}
