import { createServer } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { fileURLToPath } from 'node:url'
import type { Holdfast, Runner } from './holdfast.ts'

const ENTRY = fileURLToPath(
  new URL('../../services/runner/src/testing/effects/main.ts', import.meta.url),
)

/** What arrived outside. */
export type Effect = {
  readonly kind: 'do' | 'lookup' | 'undo' | 'wait'
  readonly key: string
  readonly runId: string
  readonly epoch: number
  readonly idempotencyKey: string
  /** What the step gave that is being undone. */
  readonly result?: unknown
  answer(body: unknown, status?: number): void
  /** The caller has gone. */
  readonly closed: Promise<void>
}

export type Outside = AsyncDisposable & {
  readonly url: string
  /** In the order of their arrival. */
  readonly effects: readonly Effect[]
  /** Those of a run as `kind key epoch`. */
  of(runId: string): string[]
  /** The first of a run that is so, as soon as it has arrived. */
  arrives(runId: string, kind: Effect['kind'], key: string, epoch?: number): Promise<Effect>
}

/** The world that steps reach into: it keeps a journal, and nothing is answered before the test says so. */
export async function startOutside(): Promise<Outside> {
  const effects: Effect[] = []
  const arrivals = new Set<() => void>()
  const sockets = new Set<Socket>()
  const server = createServer((request, response) => {
    let body = ''
    request.setEncoding('utf8').on('data', (part: string) => {
      body += part
    })
    request.on('end', () => {
      effects.push({
        ...JSON.parse(body),
        idempotencyKey: String(request.headers['idempotency-key']),
        answer: (answer, status = 200) => response.writeHead(status).end(JSON.stringify(answer)),
        closed: new Promise((resolve) => response.once('close', resolve)),
      })
      for (const arrived of arrivals) arrived()
    })
  })
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.once('close', () => sockets.delete(socket))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}/`,
    effects,
    of: (runId) =>
      effects
        .filter((effect) => effect.runId === runId)
        .map(({ kind, key, epoch }) => `${kind} ${key} ${epoch}`),
    async arrives(runId, kind, key, epoch = 1) {
      for (;;) {
        const found = effects.find(
          (effect) =>
            effect.runId === runId &&
            effect.kind === kind &&
            effect.key === key &&
            effect.epoch === epoch,
        )
        if (found) return found
        await new Promise<void>((resolve) => arrivals.add(resolve))
      }
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** The agents file that goes with `startEffectsRunner`: their limits, and who does what they are told. */
export const EFFECTS_AGENTS = {
  default: 'effects',
  agents: { effects: { type: 'demo' }, resuming: { type: 'demo' } },
}

/** A real runner with agents that have real effects outside. */
export function startEffectsRunner(holdfast: Holdfast, outside: Outside): Promise<Runner> {
  return holdfast.startRunner({ EFFECTS_URL: outside.url }, ENTRY)
}
