import {
  createServer,
  type IncomingMessage,
  type RequestOptions,
  request,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'

export type Gateway = AsyncDisposable & { readonly url: string }

/**
 * Stands before BFFs as the edge of a company does: one address, which adds the caller's token and goes to the
 * first BFF that answers. A connection that is cut behind it is cut before it, too.
 */
export async function openGateway(bffs: readonly string[], token: string): Promise<Gateway> {
  const server = createServer((incoming, outgoing) => {
    pass(incoming, outgoing, bffs, token).catch(() => outgoing.destroy())
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

async function pass(
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  bffs: readonly string[],
  token: string,
): Promise<void> {
  const body = await buffer(incoming)
  const { method, url = '/', headers } = incoming
  const options = { method, headers: { ...headers, authorization: `Bearer ${token}` } }
  for (const bff of bffs) {
    // Asking the next one is safe: a client turn is the same run wherever it arrives.
    const answer = await ask(new URL(url, bff), options, body).catch(() => null)
    if (!answer) continue
    outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
    outgoing.flushHeaders()
    await pipeline(answer, outgoing)
    return
  }
  outgoing.writeHead(502).end()
}

function ask(url: URL, options: RequestOptions, body: Buffer): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request(url, { ...options, agent: false })
      .on('response', resolve)
      .on('error', reject)
      .end(body)
  })
}
