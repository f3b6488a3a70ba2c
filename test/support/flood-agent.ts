import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

/** An AG-UI agent whose answers are far larger than what sockets buffer. */
export type FloodAgent = AsyncDisposable & { readonly url: string; readonly text: string }

/** Says `pieces` messages of `pieceChars` characters as fast as they are read. */
export async function startFloodAgent(pieces: number, pieceChars: number): Promise<FloodAgent> {
  const deltas = Array.from({ length: pieces }, (_, at) => `${at} `.padEnd(pieceChars, 'abcdefgh '))
  const server = createServer((request, response) => {
    answer(request, response).catch(() => response.destroy())
  })

  async function answer(request: AsyncIterable<Buffer>, response: ServerResponse) {
    const { threadId, runId } = JSON.parse(await textOf(request))
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    await write(response, { type: 'RUN_STARTED', threadId, runId })
    for (const [at, delta] of deltas.entries()) {
      const messageId = `${runId} ${at}`
      await write(response, { type: 'TEXT_MESSAGE_START', messageId, role: 'assistant' })
      await write(response, { type: 'TEXT_MESSAGE_CONTENT', messageId, delta })
      await write(response, { type: 'TEXT_MESSAGE_END', messageId })
    }
    await write(response, { type: 'RUN_FINISHED', threadId, runId })
    response.end()
  }

  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    text: deltas.join(''),
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

async function write(response: ServerResponse, event: object): Promise<void> {
  if (response.write(`data: ${JSON.stringify(event)}\n\n`)) return
  const settled = new AbortController()
  const { signal } = settled
  await Promise.race([once(response, 'drain', { signal }), once(response, 'close', { signal })])
  settled.abort()
}

async function textOf(parts: AsyncIterable<Buffer>): Promise<string> {
  const all: Buffer[] = []
  for await (const part of parts) all.push(part)
  return Buffer.concat(all).toString()
}
