import { within } from '@holdfast/std'
import type { FastifyReply } from 'fastify'

/** Route options of every SSE route: no negotiation, no heartbeat and no formatting of the plugin. */
export const SSE_ROUTE = {
  sse: { kind: 'manual', heartbeat: false, serializer: (data: string) => data },
  exposeHeadRoute: false,
} as const

/** One response that carries server-sent events. It ends when its handler returns. */
export type EventStream = {
  /** Aborts when the socket is gone or the process drains. */
  readonly signal: AbortSignal
  /**
   * Sends complete frames with one write and waits until the reader took them. False: nothing can
   * be sent any more, because the reader went away or was too slow and was closed.
   */
  write(frames: string): Promise<boolean>
}

/** All streams of the process. */
export type StreamRegistry = {
  readonly open: number
  readonly draining: boolean
  /** Every stream, also later ones, is told to say goodbye and end. */
  drain(): void
  enter(stream: AbortController): Disposable
}

export function streamRegistry(): StreamRegistry {
  const streams = new Set<AbortController>()
  let draining = false
  return {
    get open() {
      return streams.size
    },
    get draining() {
      return draining
    },
    drain() {
      draining = true
      for (const stream of streams) stream.abort()
    },
    enter(stream) {
      streams.add(stream)
      if (draining) stream.abort()
      return { [Symbol.dispose]: () => void streams.delete(stream) }
    },
  }
}

const BYTES_PER_DRAIN = 64 << 10
const GOODBYE_MS_MAX = 1000

/**
 * Commits the response as an event stream, sends `first` at once, hands it to `body` and ends it.
 * The plugin gives the headers (with CORS and the request id) and the end. The bytes are ours,
 * because its `send` never settles when the client vanishes under backpressure, drops id 0 and
 * lets a newline in an id inject fields.
 */
export async function serveEventStream(
  reply: FastifyReply,
  { registry, drainMs }: { registry: StreamRegistry; drainMs: number },
  first: string,
  body: (stream: EventStream) => Promise<void>,
): Promise<void> {
  const { raw } = reply
  const over = new AbortController()
  raw.once('close', () => over.abort())
  over.signal.addEventListener('abort', () => closeSoon(reply), { once: true })
  using _entry = registry.enter(over)
  reply.headers({
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store, no-transform',
    'x-accel-buffering': 'no',
    // The plugin always says keep-alive, and a client that waits for the close would wait for it.
    ...(raw.shouldKeepAlive ? {} : { connection: 'close' }),
  })
  reply.sse.sendHeaders(200)

  async function write(frames: string): Promise<boolean> {
    if (raw.destroyed || raw.writableEnded) return false
    if (frames === '' || raw.write(frames)) return true
    const slices = Math.max(1, Math.ceil(frames.length / BYTES_PER_DRAIN))
    return drained(reply, drainMs * slices)
  }

  if (await write(first)) await body({ signal: over.signal, write })
}

/** Waits for drain OR close, and closes the reader that takes neither in time. */
async function drained({ raw }: FastifyReply, limitMs: number): Promise<boolean> {
  const settled = Promise.withResolvers<boolean>()
  const onDrain = () => settled.resolve(true)
  const onClose = () => settled.resolve(false)
  raw.once('drain', onDrain)
  raw.once('close', onClose)
  if (raw.destroyed) onClose()
  const taken = await within(limitMs, settled.promise)
  raw.off('drain', onDrain)
  raw.off('close', onClose)
  if (taken === undefined) raw.destroy()
  return taken === true
}

/** A reader that does not take what a draining process owes it is cut, so that the process can exit. */
function closeSoon({ raw }: FastifyReply): void {
  if (raw.destroyed) return
  const timer = setTimeout(() => raw.destroy(), GOODBYE_MS_MAX)
  raw.once('close', () => clearTimeout(timer))
}
