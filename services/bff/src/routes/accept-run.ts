import { LIMITS } from '@holdfast/protocol'
import { HoldfastError } from '@holdfast/std'
import { type CreateRun, createRun } from '@holdfast/store'
import type { FastifyRequest } from 'fastify'
import type { Bff } from '../bff.ts'
import { notFound } from '../plugins/errors.ts'

/**
 * Stores the run and wakes the runners.
 * @throws HoldfastError for every outcome but created and repeated
 */
export async function acceptRun(bff: Bff, request: FastifyRequest, create: CreateRun) {
  if (messageBytes(create.message) > LIMITS.messageBytesMax) {
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
    case 'turn_mismatch':
      throw new HoldfastError('unprocessable', outcome.kind, 'This turn had another body before.')
    case 'turn_gone':
      throw new HoldfastError('gone', outcome.kind, 'The run of this turn was deleted.')
    case 'unknown_agent':
      throw new HoldfastError('unprocessable', outcome.kind, 'No runner ever offered this agent.')
    case 'conversation_full':
      throw new HoldfastError('too_large', outcome.kind, 'The conversation can hold no more.')
    case 'not_found':
      throw notFound()
  }
}

/** A text counts as itself, content parts as the JSON that they are. */
function messageBytes(message: CreateRun['message']): number {
  return Buffer.byteLength(typeof message === 'string' ? message : JSON.stringify(message))
}
