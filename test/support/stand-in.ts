import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'

/** A request that waits for its answer, which the test gives. */
export type Exchange = {
  readonly path: string
  readonly headers: IncomingMessage['headers']
  readonly body: string
  readonly response: ServerResponse
  /** Resolves when the caller has gone or the answer is complete. */
  readonly closed: Promise<void>
  json(value: unknown, status?: number): void
}

export type StandIn = AsyncDisposable & {
  readonly url: string
  readonly exchanges: readonly Exchange[]
  /** The exchange with this index, as soon as it has come. */
  exchange(index: number): Promise<Exchange>
}

/** An HTTP server whose every answer is the test's; `answer` does it at once where it is given. */
export async function startStandIn(answer?: (exchange: Exchange) => void): Promise<StandIn> {
  const exchanges: Exchange[] = []
  const waiting = new Set<() => void>()
  const server = createServer((request, response) => {
    const parts: Buffer[] = []
    const closed = Promise.withResolvers<void>()
    response.once('close', closed.resolve)
    request.on('data', (part: Buffer) => parts.push(part))
    request.once('end', () => {
      const exchange: Exchange = {
        path: request.url ?? '',
        headers: request.headers,
        body: Buffer.concat(parts).toString(),
        response,
        closed: closed.promise,
        json(value, status = 200) {
          response.writeHead(status, { 'content-type': 'application/json' })
          response.end(JSON.stringify(value))
        },
      }
      exchanges.push(exchange)
      answer?.(exchange)
      for (const wake of waiting) wake()
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  const port = typeof address === 'object' && address !== null ? address.port : 0
  return {
    url: `http://127.0.0.1:${port}`,
    exchanges,
    async exchange(index) {
      for (;;) {
        const found = exchanges[index]
        if (found) return found
        const { promise, resolve } = Promise.withResolvers<void>()
        waiting.add(resolve)
        await promise.finally(() => waiting.delete(resolve))
      }
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise<void>((resolve) => void server.close(() => resolve()))
    },
  }
}
