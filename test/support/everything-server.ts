import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { createServer } from 'node:net'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'

/** The protocol's own sample server, which has a tool for everything. */
export const EVERYTHING = fileURLToPath(
  import.meta.resolve('@modelcontextprotocol/server-everything/dist/index.js'),
)

/** The same over Streamable HTTP, as a process of its own. */
export async function startEverythingServer(): Promise<{ url: string; child: ChildProcess }> {
  const port = await freePort()
  const child = spawn(process.execPath, [EVERYTHING, 'streamableHttp'], {
    env: { ...process.env, PORT: `${port}` },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const exited = once(child, 'exit').then(() => {
    throw new Error('the everything server did not start')
  })
  const ready = (async () => {
    for await (const line of createInterface({ input: child.stderr })) {
      if (line.includes('listening')) return
    }
  })()
  await Promise.race([ready, exited])
  child.stderr.resume()
  exited.catch(() => undefined)
  return { url: `http://127.0.0.1:${port}/mcp`, child }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  return port
}
