import { createHash } from 'node:crypto'
import { Script } from 'node:vm'
import Fastify from 'fastify'
import { expect, test } from 'vitest'
import { pageRoute } from './page.ts'

async function page() {
  const app = Fastify()
  pageRoute(app)
  return await app.inject('/')
}

test('only the page’s own script and style may run', async () => {
  const { body, headers } = await page()
  const policy = String(headers['content-security-policy'])
  expect(policy).toContain("default-src 'none'")
  expect(policy).not.toContain('unsafe')
  for (const tag of ['script', 'style']) {
    const blocks = [...body.matchAll(new RegExp(`<${tag}[^>]*>(.*?)</${tag}>`, 'gs'))]
    expect(blocks).toHaveLength(1)
    const hash = createHash('sha256')
      .update(blocks[0]?.[1] ?? '')
      .digest('base64')
    expect(policy).toContain(`${tag}-src 'sha256-${hash}'`)
  }
})

test('nothing that was said can become markup', async () => {
  const { body } = await page()
  expect(body).not.toMatch(
    /innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|onclick="/,
  )
})

test('its script is valid', async () => {
  const { body } = await page()
  const script = /<script>(.*?)<\/script>/s.exec(body)?.[1] ?? ''
  expect(script).not.toBe('')
  expect(() => new Script(script)).not.toThrow()
})
