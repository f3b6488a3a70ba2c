import { invariant } from './assert.ts'
import { asError } from './failure.ts'
import { wait } from './wait.ts'

/**
 * Something that runs until it is stopped. `stop` may precede `start`, may be called again, and
 * resolves when nothing of it is left. `failed` rejects when it died by itself.
 */
export interface Service {
  readonly name: string
  readonly failed: Promise<never>
  start(): Promise<void>
  stop(): Promise<void>
}

/** Starts in order; if one cannot start, stops those before it. They end with the stack, in reverse. */
export async function startAll(
  stack: AsyncDisposableStack,
  services: readonly Service[],
): Promise<{ failed: Promise<never> }> {
  for (const service of services) {
    stack.defer(() => service.stop())
    await service.start()
  }
  const failed = Promise.race(services.map((service) => service.failed))
  failed.catch(() => {})
  return { failed }
}

export interface Loop extends Service {
  /** Look again soon; calls while a round is under way cause one more round. */
  wake(): void
}

/**
 * A service that calls `round` again and again: at once after `wake`, else after `everyMs` with
 * ±20 % jitter so that replicas do not march in step. A round that throws is reported to
 * `onError` and tried again; it never ends the loop.
 */
export function loop(options: {
  name: string
  everyMs: number
  round: (signal: AbortSignal) => Promise<void>
  onError: (error: Error) => void
}): Loop {
  const stopping = new AbortController()
  const { promise: failed, reject: fail } = Promise.withResolvers<never>()
  failed.catch(() => {})
  let running: Promise<void> | undefined
  let woken = false
  let nudge: (() => void) | undefined

  async function pause() {
    if (woken || stopping.signal.aborted) return
    const nudged = Promise.withResolvers<void>()
    nudge = nudged.resolve
    const timer = new AbortController()
    const jitteredMs = options.everyMs * (0.8 + Math.random() * 0.4)
    await Promise.race([nudged.promise, wait(jitteredMs, timer.signal).catch(() => {})])
    timer.abort()
    nudge = undefined
  }

  async function run() {
    while (!stopping.signal.aborted) {
      woken = false
      try {
        await options.round(stopping.signal)
      } catch (error) {
        if (!stopping.signal.aborted) options.onError(asError(error))
      }
      await pause()
    }
  }

  return {
    name: options.name,
    failed,
    async start() {
      invariant(!running, `${options.name} is started once`)
      running = run().catch(fail)
    },
    async stop() {
      stopping.abort()
      nudge?.()
      await running
    },
    wake() {
      woken = true
      nudge?.()
    },
  }
}
