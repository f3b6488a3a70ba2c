import { expect, test } from 'vitest'
import { attachmentUrl, isAttachable, isBase64, referenceOf, sentBytesOf } from './attachment.ts'
import { CreateRunBody } from './rest.ts'

const CONVERSATION = '0190a000-0000-7000-8000-000000000000'
const ID = 'ab'.repeat(32)

function errorsOf(source: object, more: object = {}) {
  const parts = [
    { type: 'text', text: 'see' },
    { type: 'image', source },
  ]
  const parsed = CreateRunBody.safeParse({ message: parts, clientTurnId: 't', ...more })
  return parsed.error?.issues.map(({ path }) => path.join('.')) ?? []
}

test('base64 is what an encoder writes, and nothing that a lenient decoder makes of it', () => {
  for (const text of ['', 'AA==', 'AAA=', 'AAAA', '+/+/']) expect(isBase64(text)).toBe(true)
  const odd = ['A', 'AA', 'AAA', 'AB==', 'AA=', '-_-_', 'AA==AA==', ' AAAA', 'AA\nAA', 'äAAA', '%']
  for (const text of odd) expect([text, isBase64(text)]).toEqual([text, false])
})

test('pictures, sound, films, text and documents may be sent, programs and nonsense may not', () => {
  const good = ['image/png', 'image/svg+xml', 'audio/webm; codecs=opus', 'video/mp4', 'text/html']
  good.push('text/csv;charset=utf-8', 'application/pdf', 'application/ld+json', 'Image/JPEG')
  good.push('application/vnd.openxmlformats-officedocument.wordprocessingml.document')
  good.push('application/vnd.ms-excel', 'application/vnd.ms-excel.sheet.macroEnabled.12')
  for (const type of good) expect([type, isAttachable(type)]).toEqual([type, true])
  const bad = ['', 'image', 'image/', 'image/*', 'application/x-msdownload', 'image/png\r\nx-y: 1']
  bad.push('text/html;<script>', ' image/png', 'multipart/mixed', `image/${'a'.repeat(130)}`)
  bad.push('application/javascript', 'image/png,text/html', 'image/png;x="a"b"')
  for (const type of bad) expect([type, isAttachable(type)]).toEqual([type, false])
})

test('what cannot be kept is refused by the path of its field', () => {
  const mimeType = 'image/png'
  expect(errorsOf({ type: 'data', value: 'AAAA', mimeType })).toEqual([])
  expect(errorsOf({ type: 'data', value: 'not base64', mimeType })).toEqual([
    'message.1.source.value',
  ])
  expect(errorsOf({ type: 'data', value: '', mimeType })).toEqual(['message.1.source.value'])
  expect(errorsOf({ type: 'data', value: 'AAAA', mimeType: 'a/b' })).toEqual([
    'message.1.source.mimeType',
  ])
  for (const value of ['data:,x', 'data:image/png;base64,?', 'data:a/b;base64,AAAA', 'DATA:x']) {
    expect([value, errorsOf({ type: 'url', value })]).toEqual([value, ['message.1.source.value']])
  }
  expect(errorsOf({ type: 'url', value: 'data:image/png;base64,AAAA' })).toEqual([])
  const content = [{ type: 'image', source: { type: 'data', value: '?', mimeType } }]
  expect(
    errorsOf({ type: 'file', value: 'x' }, { toolResults: [{ toolCallId: 'c', content }] }),
  ).toEqual(['toolResults.0.content.0.source.value'])
})

test('a message has at most a hundred parts', () => {
  const parts = (count: number) =>
    Array.from({ length: count }, () => ({ type: 'text', text: 'x' }))
  const parse = (count: number) =>
    CreateRunBody.safeParse({ message: parts(count), clientTurnId: 't' }).success
  expect([parse(100), parse(101)]).toEqual([true, false])
})

test('a reference is exactly the path of an attachment', () => {
  const url = attachmentUrl(CONVERSATION, ID)
  expect(referenceOf({ type: 'url', value: url })).toEqual({ conversationId: CONVERSATION, id: ID })
  const others = [`https://x.test${url}`, `${url}?x`, `${url}/..`, `/${url}`, url.toUpperCase()]
  for (const value of others) expect(referenceOf({ type: 'url', value })).toBeNull()
  expect(referenceOf({ type: 'file', value: url })).toBeNull()
})

test('bytes come as data or in a data URL', () => {
  const sent = { mimeType: 'text/plain;charset=utf-8', base64: 'AAAA' }
  const value = `data:${sent.mimeType};base64,${sent.base64}`
  expect(sentBytesOf({ type: 'url', value })).toEqual(sent)
  expect(sentBytesOf({ type: 'data', value: 'AAAA', mimeType: sent.mimeType })).toEqual(sent)
  expect(sentBytesOf({ type: 'url', value: 'https://x.test/y.png' })).toBeNull()
})
