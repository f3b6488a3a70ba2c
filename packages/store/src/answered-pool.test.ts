import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { expect, test } from 'vitest'
import { schemaStatus } from './migrate.ts'
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
