import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** A network between processes and PostgreSQL that fails as it is told. */
export type DatabaseProxy = AsyncDisposable & {
  /** The same database through this network. */
  through(databaseUrl: string): string
  /** Nothing passes in either direction, on new connections neither; nobody is told. */
  blackhole(which?: Which): void
  /** Connections are reset, new ones too, as soon as they have said who they are. */
  refuse(which: Which): void
  /**
   * What waited passes on, as TCP would send it again; nothing is refused any more, no more replies are lost, and the
   * database gives up what was forgotten, as its keepalive would make it.
   */
  restore(): void
  /** The connections of this moment never carry a byte again and are never closed; new ones work. */
  forget(which?: Which): void
  /**
   * From now on the next `count` requests whose bytes contain `text` reach the database, and the connection is cut
   * when its answer comes. Resolves when that has happened.
   */
  loseReplies(text: string, count: number): Promise<void>
}

/** Of connections, by the application name that they gave. */
export type Which = (applicationName: string) => boolean

type Link = { client: Socket; server: Socket; name: string; dead: boolean; loses: boolean }

export async function openDatabaseProxy(databaseUrl: string): Promise<DatabaseProxy> {
  const target = new URL(databaseUrl)
  const links = new Set<Link>()
  let swallowed: Which | null = null
  let refused: Which | null = null
  let losing: { text: string; left: number; pending: number; done: () => void } | undefined

  const proxy = createServer((client) => {
    const server = connect(Number(target.port || 5432), target.hostname)
    const link: Link = { client, server, name: '', dead: false, loses: false }
    links.add(link)
    client.on('data', (bytes) => {
      link.name ||= nameIn(bytes)
      if (refused?.(link.name)) {
        client.resetAndDestroy()
        return
      }
      if (swallowed?.(link.name)) {
        client.pause()
        client.unshift(bytes)
        return
      }
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
        if (from === client && !link.dead) links.delete(link)
      })
    }
  })
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const { port } = proxy.address() as AddressInfo

  function each(which: Which, act: (socket: Socket) => void) {
    for (const { client, server, name, dead } of links) {
      if (dead || !which(name)) continue
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
    blackhole(which = () => true) {
      swallowed = which
      each(which, (socket) => socket.pause())
    },
    refuse(which) {
      refused = which
      each(which, (socket) => socket.resetAndDestroy())
    },
    restore() {
      swallowed = null
      refused = null
      if (losing) losing.left = 0
      for (const { server, dead } of links) if (dead) server.destroy()
      each(
        () => true,
        (socket) => socket.resume(),
      )
    },
    forget(which = () => true) {
      for (const link of links) {
        if (!which(link.name)) continue
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

/** The first packet of a session names the application, or is none that does. */
function nameIn(packet: Buffer): string {
  return /application_name\0([^\0]*)\0/.exec(packet.toString('latin1'))?.[1] ?? '(none)'
}
