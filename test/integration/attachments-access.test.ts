// Goal: attachments are had by whoever may see their conversation and by nobody else, run in no browser, and nothing
// comes in that cannot be kept. Method: a Holdfast of real processes with tokens, the demo agent, plain HTTP.
import { randomBytes } from 'node:crypto'
import { SignJWT } from 'jose'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { request } from '../support/api.ts'
import { part, type Sender, said, sender } from '../support/attachment-sender.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'

const SECRET = 'a secret of at least thirty-two bytes'

const IMAGE = randomBytes(740_000)

let holdfast: Holdfast
let ada: Sender
let eve: Sender
let other: Sender
let boss: Sender

beforeAll(async () => {
  holdfast = await startHoldfast({ env: { AUTH_JWT_SECRET: SECRET, AUTH_COOKIE: 'token' } })
  ada = await somebody('ada', 'acme')
  eve = await somebody('eve', 'acme')
  other = await somebody('ada', 'other')
  boss = await somebody('boss', 'acme', 'operator')
})

afterAll(() => holdfast[Symbol.asyncDispose]())

async function somebody(user: string, tenant: string, role = 'user'): Promise<Sender> {
  const token = new SignJWT({ tenant, role }).setProtectedHeader({ alg: 'HS256' }).setSubject(user)
  const signed = await token.setExpirationTime('1h').sign(new TextEncoder().encode(SECRET))
  return sender(holdfast.url, { authorization: `Bearer ${signed}` })
}

test('they are had whole, for good, by name, and not twice', async () => {
  const { conversationId } = await ada.ended(said('look', part(IMAGE)))
  const [url = ''] = await ada.urlsOf(conversationId)
  const { response, bytes } = await ada.download(url)
  expect(bytes.equals(IMAGE)).toBe(true)
  const etag = `"${url.slice(-64)}"`
  const expected = {
    'content-type': 'image/png',
    'content-length': String(IMAGE.length),
    'content-disposition': 'inline',
    'content-security-policy': 'sandbox',
    'x-content-type-options': 'nosniff',
    'cache-control': 'private, max-age=31536000, immutable',
    vary: 'origin, authorization, cookie',
    etag,
  }
  expect(Object.fromEntries(response.headers)).toMatchObject(expected)
  const head = await request(`${holdfast.url}${url}`, { method: 'HEAD', headers: ada.headers })
  expect([head.status, head.body]).toEqual([200, { text: '' }])
  expect(Object.fromEntries(head.headers)).toMatchObject(expected)
  const known = await ada.download(url, { 'if-none-match': `"x", W/${etag}` })
  expect([known.response.status, known.bytes.length]).toEqual([304, 0])
  const cookie = `token=${ada.headers['authorization']?.slice('Bearer '.length)}`
  expect((await sender(holdfast.url, { cookie }).download(url)).response.status).toBe(200)
})

test('nobody else has it, or learns from equal bytes that somebody has', async () => {
  const bytes = randomBytes(500)
  const { conversationId } = await ada.ended([part(bytes)])
  const [url = ''] = await ada.urlsOf(conversationId)
  for (const foreign of [eve, other]) {
    expect((await foreign.download(url)).response.status).toBe(404)
    expect((await foreign.download(url, { 'if-none-match': '*' })).response.status).toBe(404)
    const head = await request(`${holdfast.url}${url}`, {
      method: 'HEAD',
      headers: foreign.headers,
    })
    expect(head.status).toBe(404)
    const theirs = await foreign.ended([part(bytes)])
    const [own = ''] = await foreign.urlsOf(theirs.conversationId)
    expect((await foreign.download(own)).bytes.equals(bytes)).toBe(true)
    expect((await ada.download(own)).response.status).toBe(404)
    const moved = url.replace(conversationId, theirs.conversationId)
    expect(moved).toBe(own)
    const reference = { type: 'image', source: { type: 'url', value: url } }
    expect((await foreign.post({ message: [reference] })).body['code']).toBe('unknown_attachment')
  }
  expect((await sender(holdfast.url).download(url)).response.status).toBe(401)
  expect((await boss.download(url)).response.status).toBe(200)
  for (const id of ['x', '0'.repeat(64), `${url.slice(-64)}%00`, url.slice(-64).toUpperCase()]) {
    const { status, body } = await request(
      `${holdfast.url}/conversations/${conversationId}/attachments/${id}`,
      { headers: ada.headers },
    )
    expect([id, status, body['code']]).toEqual([id, 404, 'not_found'])
  }
})

test('what could run in a browser is saved by it and not shown, whatever it is called', async () => {
  const named = (filename: string) => ({ metadata: { filename } })
  const script = Buffer.from('<script>alert(1)</script>')
  const { conversationId } = await ada.ended([
    part(script, 'text/html', named('a.html')),
    part(script, 'image/svg+xml', named('../../etc/x".svg\r\nset-cookie: a=b')),
    part(script, 'Image/SVG+xml;charset=utf-8', named(`${'ä'.repeat(254)}😀.svg`)),
    part(script, 'text/plain', named('C:\\temp\\ünïcode.txt')),
    part(script, 'application/pdf'),
  ])
  const urls = await ada.urlsOf(conversationId)
  const answers = await Promise.all(urls.map((url) => ada.download(url)))
  const dispositions = answers.map(({ response }) => response.headers.get('content-disposition'))
  expect(dispositions).toEqual([
    `attachment; filename="a.html"; filename*=UTF-8''a.html`,
    `attachment; filename="x_.svg__set-cookie: a=b"; filename*=UTF-8''x%22.svg%0D%0Aset-cookie%3A%20a%3Db`,
    expect.stringMatching(/^attachment; filename="_{255}"; filename\*=UTF-8''[%A-F\d]+$/),
    `inline; filename="_n_code.txt"; filename*=UTF-8''%C3%BCn%C3%AFcode.txt`,
    'inline',
  ])
  for (const { response } of answers) {
    expect(response.headers.get('content-security-policy')).toBe('sandbox')
    expect(response.headers.get('x-content-type-options')).toBe('nosniff')
    expect(response.headers.get('set-cookie')).toBeNull()
  }
})

test('what is no bytes, of no sensible type or too large is refused by its place', async () => {
  const source = { type: 'data', value: 'AAAA', mimeType: 'image/png' }
  const pathOf = async (changes: object) => {
    const message = said('x', { type: 'image', source: { ...source, ...changes } })
    const { status, body } = await ada.post({ message })
    return [status, (body['errors'] as { path: string }[]).map(({ path }) => path)]
  }
  expect(await pathOf({ value: 'AAAA=' })).toEqual([400, ['message.1.source.value']])
  expect(await pathOf({ value: '\u0000\ud800' })).toEqual([400, ['message.1.source.value']])
  expect(await pathOf({ mimeType: 'application/x-sh' })).toEqual([
    400,
    ['message.1.source.mimeType'],
  ])
  expect(await pathOf({ type: 'url', value: 'data:x' })).toEqual([400, ['message.1.source.value']])
  expect((await ada.post({ message: [part(randomBytes(800_000))] })).body['code']).toBe(
    'message_too_large',
  )
  expect((await ada.post({ message: Array(101).fill(part(Buffer.from('x'))) })).status).toBe(400)
  const messages = [
    { id: 'a', role: 'assistant', content: 'hi' },
    { id: 'u', role: 'user', content: [{ type: 'image', source: { ...source, value: '?' } }] },
  ]
  const input = { threadId: 't', runId: 'r', messages, tools: [], context: [], state: {} }
  const refused = await request(`${holdfast.url}/ag-ui/demo`, { json: input, headers: ada.headers })
  expect([refused.status, refused.body['errors']]).toMatchObject([
    400,
    [{ path: 'messages.1.content.0.source.value' }],
  ])
})
