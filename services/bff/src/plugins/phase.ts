import { HoldfastError } from '@holdfast/std'
import type { FastifyInstance } from 'fastify'
import type { Phase } from '../bff.ts'

/** While the schema is not current, no request may meet the database. */
export function phasePlugin(app: FastifyInstance, phase: Phase): void {
  app.addHook('onRequest', async () => {
    if (phase.current === 'waiting') {
      throw new HoldfastError('unavailable', 'overloaded', 'The service is starting.')
    }
  })
}
