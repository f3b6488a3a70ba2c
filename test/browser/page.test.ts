// Goal: the page keeps the product's promises in a real browser. Method: Chromium, driven like a user.
import { type Browser, chromium, type Page } from 'playwright-core'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { readLog, request, send } from '../support/api.ts'
import { startCuttingProxy } from '../support/cutting-proxy.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { textOf, until } from '../support/readers.ts'

const LIMIT_MS = 10_000
/** A picture of one pixel. */
const PIXEL = 'R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7'
let browser: Browser
let holdfast: Holdfast

beforeAll(async () => {
  browser = await chromium.launch({
    executablePath: inject('chromium'),
    args: ['--no-sandbox', '--disable-quic', '--disable-background-networking'],
  })
  holdfast = await startHoldfast()
})

afterAll(async () => {
  await browser.close()
  await holdfast[Symbol.asyncDispose]()
})

test('a message is answered while one watches, and the stored answer is what stays', async () => {
  await using page = await open()
  await say(page, 'hello page /slow 1')
  const answer = page.locator('[data-testid=message][data-role=assistant]')
  await until('the answer grows', LIMIT_MS, async () => (await textIn(answer)).length > 10)
  const early = await textIn(answer)
  await idle(page)
  const whole = await textIn(answer)
  expect(whole.startsWith(early)).toBe(true)
  expect(whole.length).toBeGreaterThan(early.length)
  expect(whole).toBe(await storedAnswer(page))
  await expectGrown(page, whole)
  expect(page.problems).toEqual([])
})

test('a reload in the middle of an answer finds the way back, with each word once', async () => {
  await using page = await open()
  await say(page, 'tell me /slow 3 /think /tool tea')
  const answer = page.locator('[data-testid=message][data-role=assistant]')
  const seen: Seen[] = []
  for (const length of [5, 60, 120]) {
    await until(
      `${length} characters`,
      LIMIT_MS,
      async () => (await textIn(answer)).length > length,
    )
    seen.push(...(await seenBy(page)))
    await page.reload()
  }
  await idle(page)
  const whole = await textIn(answer)
  expect(whole).toBe(await storedAnswer(page))
  expect(seen.filter(({ text }) => !whole.startsWith(text))).toEqual([])
  await expectGrown(page, whole)
  expect(await page.locator('[data-role=user]').count()).toBe(1)
  expect(page.problems).toEqual([])
})

test('Stop keeps what was said, marks it, and is gone', async () => {
  await using page = await open()
  await say(page, 'a long story /slow 60')
  const answer = page.locator('[data-testid=message][data-role=assistant]')
  await until('it speaks', LIMIT_MS, async () => (await textIn(answer)).length > 5)
  const before = await textIn(answer)
  await page.getByTestId('stop').click()
  await idle(page)
  expect((await textIn(answer)).startsWith(before)).toBe(true)
  expect(await answer.getAttribute('data-status')).toBe('partial')
  expect(await answer.textContent()).toContain('Interrupted')
  expect(await page.getByTestId('stop').isVisible()).toBe(false)
})

test('turns sent into a running answer wait, are still seen after a reload, and come in order', async () => {
  await using page = await open()
  await say(page, 'one /slow 2')
  await page.getByTestId('stop').waitFor()
  for (const text of ['two', 'three', 'four']) await say(page, text)
  await page.reload()
  const queued = page.locator('[data-status=queued]')
  await until('three wait', LIMIT_MS, async () => (await queued.count()) === 3)
  expect(await queued.locator('.text').allTextContents()).toEqual(['two', 'three', 'four'])
  await until('all is answered', LIMIT_MS, async () => (await answers(page)) === 4)
  await idle(page)
  const roles = await page
    .getByTestId('message')
    .evaluateAll((all) => all.map((each) => each.getAttribute('data-role')))
  expect(roles).toEqual(Array.from({ length: 4 }, () => ['user', 'assistant']).flat())
})

test('what an agent asks is still asked after a reload, and answered by its buttons', async () => {
  await using page = await open()
  await say(page, '/approve the garden /ask Which colour?')
  const questions = page.getByTestId('interrupt')
  await until('it asks twice', LIMIT_MS, async () => (await questions.count()) === 2)
  await page.reload()
  await until('it still asks', LIMIT_MS, async () => (await questions.count()) === 2)
  await page.getByRole('textbox', { name: 'Your answer' }).fill('green')
  await questions.getByRole('button', { name: 'Answer' }).click()
  await questions.getByRole('button', { name: 'Approve' }).click()
  await until('it asks no more', LIMIT_MS, async () => (await questions.count()) === 0)
  await idle(page)
  expect(await page.getByTestId('messages').textContent()).toContain('You answered "green".')
  expect(page.problems).toEqual([])
})

test('markup is text, whoever says it', async () => {
  await using page = await open()
  const evil = `<img src=x onerror="window.evil=1"><script>window.evil=1</script>`
  await say(page, `${evil} /tool ${evil} /think /slow 0.2`)
  await until('it is answered', LIMIT_MS, async () => (await answers(page)) >= 1)
  await idle(page)
  expect(await page.locator('#messages img, #messages script, #list img').count()).toBe(0)
  expect(await page.evaluate('window.evil')).toBeUndefined()
  expect(await page.locator('[data-role=user] .text').textContent()).toContain('<img src=x')
  expect(page.problems).toEqual([])
})

test('an image that was sent is shown, and one that lies elsewhere is not asked for', async () => {
  const image = (source: object) => ({ type: 'image', source })
  const { conversationId } = await send(holdfast.url, [
    image({ type: 'data', value: PIXEL, mimeType: 'image/gif' }),
    image({ type: 'url', value: 'https://elsewhere.test/a.png' }),
  ])
  await using page = await open({ url: `${holdfast.url}/#${conversationId}` })
  await idle(page)
  const images = page.locator('[data-role=user] img')
  expect(await images.count()).toBe(1)
  await until('it is loaded', LIMIT_MS, () =>
    images.evaluate((img: HTMLImageElement) => img.naturalWidth === 1),
  )
  expect(page.problems).toEqual([])
})

test('it can be used on a phone of 390 pixels', async () => {
  await using page = await open({ width: 390, height: 844 })
  await say(page, `${'wide'.repeat(100)} /tool ${'x'.repeat(300)} /slow 0.2`)
  await until('it is answered', LIMIT_MS, async () => (await answers(page)) >= 1)
  await idle(page)
  for (const part of ['documentElement', 'querySelector("#messages")']) {
    const { scrollWidth, clientWidth } = await page.evaluate<{
      scrollWidth: number
      clientWidth: number
    }>(`(({ scrollWidth, clientWidth }) => ({ scrollWidth, clientWidth }))(document.${part})`)
    expect(scrollWidth, part).toBe(clientWidth)
  }
  for (const id of ['send', 'composer', 'new-conversation']) {
    const box = await page.getByTestId(id).boundingBox()
    expect(box?.x, id).toBeGreaterThanOrEqual(0)
    expect((box?.x ?? 0) + (box?.width ?? 0), id).toBeLessThanOrEqual(390)
    expect((box?.y ?? 0) + (box?.height ?? 0), id).toBeLessThanOrEqual(844)
  }
})

test("the page's own EventSource survives a network that cuts, and shows the exact text", async () => {
  const { url } = holdfast
  await using proxy = await startCuttingProxy(url)
  await using page = await open({ url: proxy.url })
  await say(page, 'tell me /slow 3')
  const answer = page.locator('[data-testid=message][data-role=assistant]')
  for (const length of [5, 80, 160]) {
    await until(
      `${length} characters`,
      LIMIT_MS,
      async () => (await textIn(answer)).length > length,
    )
    proxy.cutAll()
  }
  await idle(page)
  const { body } = await request(`${url}/runs?conversationId=${conversationOf(page)}`)
  const [run] = body['runs'] as { runId: string }[]
  const log = await readLog(url, run?.runId ?? '')
  const whole = textOf(log.map(({ event }) => event))
  expect(await textIn(answer)).toBe(whole)
  const states = (await expectGrown(page, whole)).map(({ state }) => state)
  expect(states).toContain('reconnecting')
})

/** What stood on the page after each change: the status, and what the assistant says. */
type Seen = { state: string; text: string }

const WATCH = `
  window.seen = []
  new MutationObserver(() => {
    const said = document.querySelectorAll('[data-role=assistant] .text')
    const text = [...said].map((each) => each.textContent).join('')
    const state = document.querySelector('[data-testid=status]')?.dataset.state ?? ''
    window.seen.push({ state, text })
  }).observe(document, { subtree: true, childList: true, attributes: true })
`

async function seenBy(page: Page): Promise<Seen[]> {
  return page.evaluate('window.seen')
}

/** At no moment since it was loaded did the page show anything but a beginning of the whole. */
async function expectGrown(page: Page, whole: string): Promise<Seen[]> {
  const seen = await seenBy(page)
  expect(seen.filter(({ text }) => !whole.startsWith(text))).toEqual([])
  const lengths = seen.map(({ text }) => text.length)
  expect(lengths).toEqual(lengths.toSorted((a, b) => a - b))
  expect(new Set(lengths).size).toBeGreaterThan(5)
  return seen
}

type Driven = Page & AsyncDisposable & { problems: string[] }

async function open(
  options: { width?: number; height?: number; url?: string } = {},
): Promise<Driven> {
  const { width = 1000, height = 700, url = holdfast.url } = options
  const context = await browser.newContext({ viewport: { width, height } })
  const page = await context.newPage()
  const problems: string[] = []
  page.on('pageerror', (error) => problems.push(String(error)))
  page.on('console', (said) => said.type() === 'error' && problems.push(said.text()))
  page.setDefaultTimeout(LIMIT_MS)
  await page.addInitScript(WATCH)
  await page.goto(url)
  return Object.assign(page, { problems, [Symbol.asyncDispose]: () => context.close() })
}

async function say(page: Page, text: string): Promise<void> {
  const sent = page.waitForResponse((response) => response.request().method() === 'POST')
  await page.getByTestId('composer').fill(text)
  await page.getByTestId('send').click()
  await sent
  await until('it was taken', LIMIT_MS, async () => {
    return (await page.getByTestId('composer').inputValue()) === ''
  })
}

async function idle(page: Page): Promise<void> {
  await page.locator('[data-testid=status][data-state=idle]').waitFor()
}

async function answers(page: Page): Promise<number> {
  return page.locator('[data-testid=message][data-role=assistant][data-status=complete]').count()
}

async function textIn(answer: ReturnType<Page['locator']>): Promise<string> {
  return (await answer.locator('.text').allTextContents()).join('')
}

/** All text of the assistant as it is stored. */
async function storedAnswer(page: Page): Promise<string> {
  const { body } = await request(`${holdfast.url}/conversations/${conversationOf(page)}`)
  const rows = body['messages'] as { message: { role: string; content?: string } }[]
  return rows
    .flatMap(({ message }) => (message.role === 'assistant' ? message.content : []))
    .join('')
}

function conversationOf(page: Page): string {
  return new URL(page.url()).hash.slice(1)
}
