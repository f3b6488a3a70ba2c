import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** A network between processes and PostgreSQL that fails as it is told. */
export type DatabaseProxy = AsyncDisposable & {
  /** The same database through this network. */
  through(databaseUrl: string): string
  /** Nothing passes in either direction, on new connections neither; nobody is told. */
  blackhole(): void
  /** What waited passes on, as TCP would send it again. */
  restore(): void
  /** The connections of this moment never carry a byte again and are never closed; new ones work. */
  forget(): void
  /**
   * From now on the next `count` requests whose bytes contain `text` reach the database, and the connection is cut
   * when its answer comes. Resolves when that has happened.
   */
  loseReplies(text: string, count: number): Promise<void>
}

type Link = { client: Socket; server: Socket; dead: boolean; loses: boolean }

export async function openDatabaseProxy(databaseUrl: string): Promise<DatabaseProxy> {
  const target = new URL(databaseUrl)
  const links = new Set<Link>()
  let open = true
  let losing: { text: string; left: number; pending: number; done: () => void } | undefined

  const proxy = createServer((client) => {
    const server = connect(Number(target.port || 5432), target.hostname)
    const link: Link = { client, server, dead: false, loses: false }
    links.add(link)
    client.on('data', (bytes) => {
      if (losing && losing.left > 0 && !link.loses && bytes.includes(losing.text)) {
        losing.left -= 1
        link.loses = true
      }
      server.write(bytes)
    })
    server.on('data', (bytes) => {
      if (!link.loses) client.write(bytes)
      else if (losing && !client.destroyed) {
        // The answer is there, so what was asked is done; nobody will ever know.
        client.resetAndDestroy()
        losing.pending -= 1
        if (losing.pending === 0) losing.done()
      }
    })
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      from.setNoDelay(true)
      from.on('error', () => from.destroy())
      from.on('close', () => {
        if (!link.dead) to.destroy()
        if (from === client) links.delete(link)
      })
      if (!open) from.pause()
    }
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const { port } = proxy.address() as AddressInfo

  function each(act: (socket: Socket) => void) {
    for (const { client, server, dead } of links) {
      if (dead) continue
      act(client)
      act(server)
    }
  }

  return {
    through(url) {
      const through = new URL(url)
      through.hostname = '127.0.0.1'
      through.port = `${port}`
      return through.href
    },
    blackhole() {
      open = false
      each((socket) => socket.pause())
    },
    restore() {
      open = true
      each((socket) => socket.resume())
    },
    forget() {
      for (const link of links) {
        link.dead = true
        link.client.pause()
        link.server.pause()
      }
    },
    loseReplies(text, count) {
      return new Promise((done) => {
        losing = { text, left: count, pending: count, done }
      })
    },
    async [Symbol.asyncDispose]() {
      for (const { client, server } of links) {
        client.destroy()
        server.destroy()
      }
      await new Promise((resolve) => proxy.close(resolve))
    },
  }
}
