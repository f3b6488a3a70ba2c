import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

const MAIN = fileURLToPath(new URL('../../examples/mastra-agent/src/main.ts', import.meta.url))

export type MastraProcess = {
  /** Where it takes RunAgentInput. */
  readonly url: string
  readonly child: ChildProcess
  /** SIGTERM; resolves with the exit code. */
  stop(): Promise<number | null>
}

/** The example's agent as a process of its own, on the model at `modelUrl`. */
export async function startMastraAgent(modelUrl: string): Promise<MastraProcess> {
  const child = spawn(process.execPath, [MAIN], {
    env: { ...process.env, MODEL_BASE_URL: modelUrl, MODEL: 'scripted', PORT: '0' },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const exited = once(child, 'exit').then(([code]) => code as number | null)
  const lines = createInterface({ input: child.stdout })
  const ready = Promise.withResolvers<string>()
  lines.on('line', (line) => {
    const [, url] = /^Mastra agent is ready at (\S+)$/.exec(line) ?? []
    if (url !== undefined) ready.resolve(`${url}/`)
  })
  const url = await Promise.race([
    ready.promise,
    exited.then((code) => {
      throw new Error(`the Mastra agent ended with ${code} before it was ready`)
    }),
  ])
  return {
    url,
    child,
    async stop() {
      child.kill('SIGTERM')
      return await exited
    },
  }
}
