import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { hostname } from 'node:os'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import type { RunnerMetrics } from './metrics.ts'

const WILDCARDS: ReadonlySet<string> = new Set(['0.0.0.0', '::'])

/** The runner's own `/metrics`, `/healthz` and `/readyz`, for scrapers and container health checks. */
export async function openOpsServer(options: {
  host: string
  port: number
  metrics: RunnerMetrics
  ready: () => Promise<boolean>
}): Promise<{ url: string } & AsyncDisposable> {
  const lag = monitorEventLoopDelay({ resolution: 20 })
  lag.enable()
  const answers: Record<string, () => Promise<{ status: number; type: string; body: string }>> = {
    '/healthz': async () => json(200, { status: 'alive' }),
    '/readyz': async () =>
      (await options.ready()) ? json(200, { status: 'ready' }) : json(503, { status: 'not ready' }),
    '/metrics': async () => {
      options.metrics.loopLag.set(lag.max / 1e9)
      lag.reset()
      const { registry } = options.metrics
      return { status: 200, type: registry.contentType, body: await registry.metrics() }
    },
  }
  const server = createServer((request, response) => {
    const [path = '/'] = (request.url ?? '/').split('?', 1)
    const answer = Object.hasOwn(answers, path) ? answers[path] : undefined
    const answering = answer && request.method === 'GET' ? answer() : notFound()
    answering.then(
      ({ status, type, body }) => response.writeHead(status, { 'content-type': type }).end(body),
      () => response.writeHead(500).end(),
    )
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(options.port, options.host, resolve)
  })
  const { port } = server.address() as AddressInfo
  return {
    // An address that means all interfaces is none that a scraper can use.
    url: `http://${WILDCARDS.has(options.host) ? hostname() : options.host}:${port}`,
    async [Symbol.asyncDispose]() {
      lag.disable()
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

async function notFound() {
  return json(404, { status: 'not found' })
}

function json(status: number, body: unknown) {
  return { status, type: 'application/json', body: JSON.stringify(body) }
}
