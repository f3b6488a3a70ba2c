import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { expect, test } from 'vitest'
import { schemaStatus } from './migrate.ts'
import { readOwnership } from './renew.ts'
import { openStore } from './store.ts'

/** A message of PostgreSQL's protocol. */
function message(type: string, body: string): Buffer {
  const length = Buffer.alloc(4)
  length.writeInt32BE(body.length + 4)
  return Buffer.concat([Buffer.from(type), length, Buffer.from(body, 'latin1')])
}

const READY = [message('R', '\0\0\0\0'), message('Z', 'I')]
const TERMINATED = message('E', 'SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0')

test('a session that is ready and over in one packet fails its statement and not the process', async () => {
  const server = createServer((socket) => {
    socket.on('error', () => undefined)
    // Nobody else gets in, so that the second try has an end.
    server.close()
    socket.once('data', () => socket.end(Buffer.concat([...READY, TERMINATED])))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const databaseUrl = `postgres://nobody@127.0.0.1:${port}/none`
  await using store = openStore({ databaseUrl, applicationName: 'test', poolMax: 1 })
  await expect(schemaStatus(store)).rejects.toMatchObject({ kind: 'unavailable' })
})

test.each([
  [false, /^holdfast_/],
  [true, /^$/],
])(
  'a statement that is sent behind a pooler (%s) has a name only where names are kept',
  async (pooled, name) => {
    const parsed = Promise.withResolvers<string>()
    const server = createServer((socket) => {
      socket.on('error', () => undefined)
      socket.once('data', () => {
        socket.write(Buffer.concat(READY))
        // Its type, its length, and then the name.
        socket.once('data', (bytes) => {
          parsed.resolve(bytes.toString('latin1', 5, bytes.indexOf(0, 5)))
          socket.destroy()
          server.close()
        })
      })
    })
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const databaseUrl = `postgres://nobody@127.0.0.1:${port}/none`
    await using store = openStore({ databaseUrl, applicationName: 'test', poolMax: 1, pooled })
    const asked = readOwnership(store, [
      { runId: '00000000-0000-7000-8000-000000000000', epoch: 1 },
    ])
    await expect(asked).rejects.toMatchObject({ kind: 'unavailable' })
    expect(await parsed.promise).toMatch(name)
  },
)
