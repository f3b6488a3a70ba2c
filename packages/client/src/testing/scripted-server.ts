import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'

export type Asked = {
  url: string
  method: string
  headers: IncomingMessage['headers']
  body: string
}
export type Answer = (response: ServerResponse) => void

export type ScriptedServer = AsyncDisposable & { baseUrl: string; asked: Asked[] }

/** Answers the first request with the first answer and so on; one too many gets a 418. */
export async function scriptedServer(answers: readonly Answer[]): Promise<ScriptedServer> {
  const asked: Asked[] = []
  const server = createServer((request, response) => {
    const answer = answers[asked.length]
    const { url = '', method = '', headers } = request
    const ask: Asked = { url, method, headers, body: '' }
    asked.push(ask)
    request.on('data', (chunk: Buffer) => {
      ask.body += chunk.toString()
    })
    request.on('end', () => {
      if (answer) answer(response)
      else response.writeHead(418).end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const port = typeof address === 'object' && address ? address.port : 0
  return {
    baseUrl: `http://127.0.0.1:${port}`,
    asked,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}
