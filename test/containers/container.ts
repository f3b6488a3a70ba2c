import { text } from 'node:stream/consumers'
import { type GenericContainer, getContainerRuntimeClient } from 'testcontainers'
import { inject } from 'vitest'
import { RUN_LABEL } from './images.ts'

const STOP_SECONDS = 20

/** A container and what can happen to it. */
export type Container = AsyncDisposable & {
  readonly hostname: string
  /** The host's port that leads to this one of the container. */
  port(port: number): number
  /** What a command printed that ran in the container and succeeded. */
  exec(...command: string[]): Promise<string>
  /** `docker kill`: SIGKILL. */
  kill(): Promise<void>
  pause(): Promise<void>
  unpause(): Promise<void>
  /** `docker stop`: SIGTERM, or what the image says. Resolves with the exit code; 137 if it had to be killed. */
  stop(): Promise<number>
  /** `docker restart`; the ports change. */
  restart(): Promise<void>
  disconnect(networkId: string): Promise<void>
  connect(networkId: string): Promise<void>
  health(): Promise<string | undefined>
  /** Fails with the log of a container that ended although nobody ended it. */
  check(): Promise<void>
}

/** Starts it under the label of this run. */
export async function startContainer(
  name: string,
  definition: GenericContainer,
): Promise<Container> {
  const { container: engine, network } = await getContainerRuntimeClient()
  const started = await definition.withLabels({ [RUN_LABEL]: inject('containerRun') }).start()
  const container = engine.getById(started.getId())
  const state = async () => (await container.inspect()).State
  let ended = false
  let paused = false

  async function unpause() {
    if (paused) await container.unpause()
    paused = false
  }

  return {
    hostname: started.getHostname(),
    port: (port) => started.getMappedPort(port),
    async exec(...command) {
      const { exitCode, output } = await started.exec(command)
      if (exitCode !== 0) throw new Error(`${command.join(' ')} ended with ${exitCode}: ${output}`)
      return output.trim()
    },
    async kill() {
      ended = true
      await container.kill({ signal: 'SIGKILL' })
      await container.wait()
    },
    async pause() {
      await container.pause()
      paused = true
    },
    unpause,
    async stop() {
      ended = true
      await container.stop({ t: STOP_SECONDS })
      return (await state()).ExitCode
    },
    restart: () => started.restart({ timeout: STOP_SECONDS * 1000 }),
    async disconnect(networkId) {
      await network.getById(networkId).disconnect({ Container: container.id })
    },
    async connect(networkId) {
      await network.getById(networkId).connect({ Container: container.id })
    },
    health: async () => (await state()).Health?.Status,
    async check() {
      const { Running, ExitCode } = await state()
      if (ended || Running) return
      const log = await text(await started.logs({ tail: 40 }))
      throw new Error(`${name} ended by itself with ${ExitCode}:\n${log}`)
    },
    async [Symbol.asyncDispose]() {
      await unpause()
      await started.stop({ timeout: 0 })
    },
  }
}
