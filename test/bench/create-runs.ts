import { randomUUID } from 'node:crypto'
import { Agent, request } from 'node:http'

/** Posts turns over connections that are kept; one a conversation. */
export type Poster = Disposable & {
  /** Resolves with the run's id when it is durable. */
  post(turn: { message: string; agent?: string }): Promise<string>
}

export function openPoster(port: number, connections: number): Poster {
  const agent = new Agent({ keepAlive: true, maxSockets: connections })
  return {
    async post(turn) {
      const body = JSON.stringify({ clientTurnId: randomUUID(), ...turn })
      const { status, text } = await send(agent, port, body)
      if (status !== 202) throw new Error(`POST /runs answered ${status}: ${text}`)
      return (JSON.parse(text) as { runId: string }).runId
    },
    [Symbol.dispose]: () => agent.destroy(),
  }
}

/** As many at a time as there are connections. */
export async function createRuns(
  port: number,
  count: number,
  turn: { message: string; agent?: string },
): Promise<string[]> {
  using poster = openPoster(port, 16)
  return await Promise.all(Array.from({ length: count }, () => poster.post(turn)))
}

function send(agent: Agent, port: number, body: string): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        agent,
        port,
        host: '127.0.0.1',
        method: 'POST',
        path: '/runs',
        headers: {
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
        },
      },
      (answer) => {
        const chunks: Buffer[] = []
        answer.on('data', (chunk: Buffer) => chunks.push(chunk))
        answer.on('end', () =>
          resolve({ status: answer.statusCode ?? 0, text: Buffer.concat(chunks).toString() }),
        )
        answer.on('error', reject)
      },
    )
    sent.on('error', reject)
    sent.end(body)
  })
}
