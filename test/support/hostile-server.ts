import { readdirSync, readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'

const CORPUS = new URL('../conformance/upstream/', import.meta.url)

/** A case of the corpus as far as a whole Holdfast can be shown it. */
export type CorpusCase = {
  readonly name: string
  readonly failure?: { readonly code: string }
  readonly response?: { status?: number; headers?: Record<string, string>; ending?: string }
}

/** A body that is made while it is read; it may have no end. */
export type Body = () => Iterable<string>

export type HostileServer = AsyncDisposable & {
  readonly url: string
  /** Connections that are open. */
  readonly open: number
}

/** The cases of a folder whose meaning does not hang on caps, timeouts or tools of their own. */
export function corpusCases(folder: '' | 'openai/'): CorpusCase[] {
  return readdirSync(new URL(folder, CORPUS))
    .filter((file) => file.endsWith('.json'))
    .flatMap((file) => {
      const { run, caps, ...one } = JSON.parse(readFileSync(new URL(folder + file, CORPUS), 'utf8'))
      return run || caps ? [] : [{ ...one, name: `${folder}${file.slice(0, -'.json'.length)}` }]
    })
}

/** Answers each request by the last `case:NAME` in it: with a file of the corpus, or with one of these bodies. */
export async function startHostileServer(
  bodies: Readonly<Record<string, Body>>,
): Promise<HostileServer> {
  const sockets = new Set<Socket>()
  const cases = new Map(
    [...corpusCases(''), ...corpusCases('openai/')].map((one) => [one.name, one]),
  )
  const server = createServer((request, response) => {
    answer(request, response, cases, bodies).catch((error: unknown) => server.emit('error', error))
  })
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.once('close', () => sockets.delete(socket))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}`,
    get open() {
      return sockets.size
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

async function answer(
  request: IncomingMessage,
  response: ServerResponse,
  cases: ReadonlyMap<string, CorpusCase>,
  bodies: Readonly<Record<string, Body>>,
): Promise<void> {
  let asked = ''
  for await (const part of request.setEncoding('utf8')) asked += String(part)
  const name = [...asked.matchAll(/case:([\w./-]+)/g)].at(-1)?.[1] ?? ''
  const { status = 200, headers, ending = 'end' } = cases.get(name)?.response ?? {}
  if (status !== 0) {
    response.writeHead(status, { 'content-type': 'text/event-stream', ...headers })
    response.flushHeaders()
    const body = bodies[name]
    if (body) await pour(body(), response)
    else response.write(readFileSync(new URL(`${name}.sse`, CORPUS)))
  }
  if (ending === 'end') response.end()
  // What a reset throws away is not what is looked at here.
  if (ending === 'cut' || ending === 'reset') request.socket.end()
}

/** Whoever has had enough closes the connection; that is no failure of the server. */
async function pour(body: Iterable<string>, response: ServerResponse): Promise<void> {
  await pipeline(Readable.from(body), response).catch((error: unknown) => {
    if (!response.destroyed) throw error
  })
}
