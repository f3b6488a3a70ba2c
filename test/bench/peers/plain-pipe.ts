import { createServer } from 'node:http'
import { Readable } from 'node:stream'
import Fastify from 'fastify'
import { request } from 'undici'

/** The floor: an upstream that speaks at a pace, and a service that passes its bytes on and keeps none. */
const upstream = createServer((incoming, answer) => {
  answer.writeHead(200, { 'content-type': 'text/event-stream' })
  const everyMs = Number(new URL(incoming.url ?? '', 'http://upstream').searchParams.get('every'))
  let sequence = 0
  const speak = () => {
    sequence += 1
    const event = { type: 'TEXT_MESSAGE_CONTENT', messageId: 'm1', delta: `t${Date.now()} word ` }
    answer.write(`id: ${sequence}\ndata: ${JSON.stringify(event)}\n\n`)
  }
  let speaking: NodeJS.Timeout | undefined
  const phase = setTimeout(() => {
    speaking = setInterval(speak, everyMs)
  }, Math.random() * everyMs)
  answer.once('close', () => {
    clearTimeout(phase)
    clearInterval(speaking)
  })
}).listen(0, '127.0.0.1')
await new Promise((resolve) => upstream.once('listening', resolve))
const source = `http://127.0.0.1:${portOf(upstream.address())}`

const app = Fastify()
app.get('/stream', async (incoming, reply) => {
  const { every = '50' } = incoming.query as { every?: string }
  const { body } = await request(`${source}/?every=${every}`, { bodyTimeout: 0 })
  reply.raw.once('close', () => body.destroy())
  body.once('error', () => undefined)
  return reply.type('text/event-stream').send(Readable.from(body))
})
await app.listen({ port: 0, host: '127.0.0.1' })
process.send?.({ port: portOf(app.server.address()) })
process.on('SIGTERM', () => process.exit(0))

function portOf(address: ReturnType<typeof upstream.address>): number {
  if (typeof address !== 'object' || !address) throw new Error('a listener has a port')
  return address.port
}
