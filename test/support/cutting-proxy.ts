import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** A TCP proxy that does to connections what networks do. */
export type CuttingProxy = AsyncDisposable & {
  readonly url: string
  /** Connections it took so far. */
  readonly connections: number
  /** Resets all that are open now. */
  cutAll(): void
}

export type ProxyOptions = {
  /** After how many bytes of answers the n-th connection (from 1) is cut; null: never. */
  cutAfterBytes?: (connection: number) => number | null
  /** `end`: as if all were well. */
  how?: 'reset' | 'end'
  /** Passes answers on in pieces of these sizes. */
  pieceBytes?: () => number
}

/** Forwards to the host and port of `targetUrl`. */
export async function startCuttingProxy(
  targetUrl: string,
  { cutAfterBytes = () => null, how = 'reset', pieceBytes }: ProxyOptions = {},
): Promise<CuttingProxy> {
  const target = new URL(targetUrl)
  const open = new Set<Socket>()
  let connections = 0

  const server = createServer((client) => {
    connections += 1
    const limit = cutAfterBytes(connections)
    const upstream = connect(Number(target.port), target.hostname)
    for (const socket of [client, upstream]) {
      open.add(socket.setNoDelay(true))
      socket.on('error', () => socket.destroy())
      socket.on('close', () => open.delete(socket))
    }
    client.pipe(upstream)
    client.on('close', () => upstream.destroy())
    pass(upstream, client, { limit, how, pieceBytes }).catch(() => client.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get connections() {
      return connections
    },
    cutAll() {
      for (const socket of open) socket.resetAndDestroy()
    },
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close')
      server.close()
      for (const socket of open) socket.destroy()
      await closed
    },
  }
}

async function pass(
  upstream: Socket,
  client: Socket,
  rules: { limit: number | null; how: 'reset' | 'end'; pieceBytes?: (() => number) | undefined },
): Promise<void> {
  let left = rules.limit ?? Number.POSITIVE_INFINITY
  for await (const data of upstream) {
    const allowed = (data as Buffer).subarray(0, left)
    left -= allowed.length
    for (let at = 0; at < allowed.length; ) {
      const piece = allowed.subarray(at, at + (rules.pieceBytes?.() ?? allowed.length))
      at += piece.length
      if (!client.write(piece)) await Promise.race([once(client, 'drain'), once(client, 'close')])
      if (client.destroyed) return
      // Pieces that are written in one turn of the loop would arrive as one.
      if (rules.pieceBytes) await new Promise((resolve) => setImmediate(resolve))
    }
    if (left > 0) continue
    if (rules.how === 'end') client.end()
    else client.resetAndDestroy()
    upstream.destroy()
    return
  }
  client.end()
}
