import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { FastifyInstance } from 'fastify'

/** GET /: a small chat that shows what the API can do. Read once, at start. */
export function pageRoute(app: FastifyInstance): void {
  const html = readFileSync(new URL('../../page/index.html', import.meta.url), 'utf8')
  const policy = [
    "default-src 'none'",
    `script-src ${hashOf(html, 'script')}`,
    `style-src ${hashOf(html, 'style')}`,
    "connect-src 'self'",
    "img-src 'self' data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ')

  app.get('/', { schema: { hide: true } }, (_request, reply) =>
    reply
      .type('text/html; charset=utf-8')
      .header('cache-control', 'no-cache')
      .header('content-security-policy', policy)
      .header('referrer-policy', 'no-referrer')
      .send(html),
  )
}

/** Only the page's own inline block may run, by its hash. */
function hashOf(html: string, tag: 'script' | 'style'): string {
  const block = new RegExp(`<${tag}>(.*?)</${tag}>`, 's').exec(html)?.[1] ?? ''
  return `'sha256-${createHash('sha256').update(block).digest('base64')}'`
}
