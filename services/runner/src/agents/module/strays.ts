import { AsyncLocalStorage } from 'node:async_hooks'
import { asError } from '@holdfast/std'
import type { Logger } from 'pino'

/** The run whose code something belongs to. */
type Origin = {
  readonly log: Logger
  /** Ends the run as failed. */
  readonly die: (error: Error) => void
}

export type Strays = Disposable & {
  /** Errors that nobody catches are known to come from `body`, also long after it has returned. */
  within<T>(origin: Origin, body: () => T): T
}

/**
 * What a module lets fall must not take the other runs with it. A rejection that nobody awaits is reported in its
 * run's log, and the run goes on: libraries leave such promises behind when they are told to stop. An exception out of
 * a callback ends its run as failed, since part of it has died. What belongs to no run is a bug of the runner's own:
 * the process ends, and the leases take care.
 */
export function catchStrays(): Strays {
  const origins = new AsyncLocalStorage<Origin>()

  function onRejection(reason: unknown) {
    const origin = origins.getStore()
    if (!origin) throw asError(reason)
    origin.log.error({ err: reason }, 'a promise of the agent was rejected and nobody awaits it')
  }
  function onException(error: Error) {
    const origin = origins.getStore()
    if (!origin) return crash(error)
    origin.log.error({ err: error }, 'a callback of the agent threw; the run fails')
    origin.die(error)
  }

  process.on('unhandledRejection', onRejection)
  process.on('uncaughtException', onException)
  return {
    within: (origin, body) => origins.run(origin, body),
    [Symbol.dispose]() {
      process.off('unhandledRejection', onRejection)
      process.off('uncaughtException', onException)
    },
  }
}

/** As Node does it when nobody listens. */
function crash(error: Error): never {
  process.stderr.write(`${asError(error).stack}\n`)
  process.exit(1)
}
