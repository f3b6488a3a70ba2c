import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { Writable } from 'node:stream'
import { asError, backoffMs, HoldfastError, wait, within } from '@holdfast/std'
import type { Logger } from 'pino'
import type { Environment } from './config.ts'

/** After this long a death is no longer counted as part of the same trouble. */
const CALM_MS = 30_000

/** What a service process tells its parent once it is at work. */
export type UpMessage = { type: 'listening'; port: number } | { type: 'registered'; bootId: string }

export type Child = {
  /** The first message of the first process. */
  readonly up: Promise<UpMessage>
  /** Rejects when it cannot be started at all: it ended with a failure before it was ever up. */
  readonly failed: Promise<never>
  /** SIGTERM, and SIGKILL when the drain takes longer than `graceMs`; resolves when it is gone. */
  stop(graceMs: number): Promise<void>
}

export type ChildOptions = {
  readonly name: string
  /** The service's main.ts. */
  readonly script: string
  readonly args?: readonly string[]
  /** Asked at every start, since a restart must keep what the first one chose. */
  readonly env: () => Environment
  readonly log: Logger
  /** Inherited, and closed when the process ends. */
  readonly hold?: Writable | undefined
  readonly onSpawn: (pid: number) => Promise<void>
}

/**
 * Keeps one service process running. It gets a process group of its own, so that Ctrl-C reaches only
 * us and things end in order, and an IPC channel by which it sees that we are gone.
 */
export function keepRunning(options: ChildOptions): Child {
  const { name, log } = options
  const stopping = new AbortController()
  const up = Promise.withResolvers<UpMessage>()
  const { promise: failed, reject: fail } = Promise.withResolvers<never>()
  up.promise.catch(() => {})
  failed.catch(() => {})
  let everUp = false
  let current: ChildProcess | undefined

  async function live() {
    for (let deaths = 0; !stopping.signal.aborted; deaths += 1) {
      const startedAt = performance.now()
      const child = start(options)
      current = child
      const exited = once(child, 'exit')
      child.on('message', (message: UpMessage) => {
        if (message.type !== 'listening' && message.type !== 'registered') return
        everUp = true
        up.resolve(message)
      })
      if (child.pid !== undefined) await options.onSpawn(child.pid)
      const [code, signal] = await exited
      if (stopping.signal.aborted) return
      if (!everUp && code !== null && code !== 0) {
        throw new HoldfastError('unavailable', 'start_failed', `${name} could not start, see above`)
      }
      if (performance.now() - startedAt > CALM_MS) deaths = 0
      const pauseMs = backoffMs(deaths, { baseMs: 200, capMs: 10_000 })
      log.warn({ child: name, code, signal, pauseMs }, 'a process ended and is started again')
      await wait(pauseMs, stopping.signal).catch(() => {})
    }
  }

  const living = live().catch((error) => fail(asError(error)))
  return {
    up: up.promise,
    failed,
    async stop(graceMs) {
      stopping.abort()
      current?.kill('SIGTERM')
      const gone = await within(
        graceMs,
        living.then(() => true),
      )
      if (gone) return
      log.error({ child: name, graceMs }, 'a process did not drain in time and is killed')
      current?.kill('SIGKILL')
      await living
    },
  }
}

function start({ script, args = [], env, hold }: ChildOptions): ChildProcess {
  // Its standard output goes to our standard error: ours carries the one line that tools wait for.
  const stdio = ['ignore', 2, 2, 'ipc', ...(hold ? [hold] : [])] as const
  return spawn(process.execPath, ['--conditions=holdfast-source', script, ...args], {
    detached: true,
    stdio: [...stdio],
    env: { ...env() },
  })
}
