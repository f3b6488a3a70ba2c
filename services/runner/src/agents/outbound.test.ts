import { expect, test } from 'vitest'
import { guardOutbound, isOutboundEntry } from './outbound.ts'

const CLOSED = { allow: [], openMode: false }

function permits(url: string, outbound: { allow: string[]; openMode: boolean } = CLOSED) {
  const host = new URL(url).hostname
  return guardOutbound(host, outbound).permitsAddress(host)
}

test.each([
  'http://127.0.0.1/',
  'http://2852039166/',
  'http://0x7f.0.0.1/',
  'http://0177.1/',
  'http://[::1]/',
  'http://[::]/',
  'http://[::ffff:169.254.169.254]/',
  'http://[::ffff:a9fe:a9fe]/',
  'http://[::127.0.0.1]/',
  'http://[64:ff9b::7f00:1]/',
  'http://[2002:7f00:1::]/',
  'http://[fd00::1]/',
  'http://[fe80::1]/',
  'http://10.1.2.3/',
  'http://100.64.0.1/',
  'http://172.31.255.255/',
  'http://192.168.0.1/',
  'http://0.0.0.0/',
  'http://255.255.255.255/',
])('%s is not reachable unless it is allowed', (url) => {
  expect(permits(url)).toBe(false)
  expect(permits(url, { allow: ['0.0.0.0/0', '::/0'], openMode: false })).toBe(true)
})

test.each(['http://1.1.1.1/', 'http://172.32.0.1/', 'http://[2606:4700::1111]/'])(
  '%s is public and reachable',
  (url) => expect(permits(url)).toBe(true),
)

test('open mode reaches the own machine and nothing else that is private', () => {
  const open = { allow: [], openMode: true }
  expect(permits('http://127.9.9.9/', open)).toBe(true)
  expect(permits('http://[::1]/', open)).toBe(true)
  expect(permits('http://[::ffff:127.0.0.1]/', open)).toBe(true)
  expect(permits('http://169.254.169.254/', open)).toBe(false)
  expect(permits('http://10.0.0.1/', open)).toBe(false)
})

test('an allowed CIDR or address lets through what is in it only', () => {
  const outbound = { allow: ['10.1.0.0/16', '192.168.1.7', 'fd00::/8'], openMode: false }
  expect(permits('http://10.1.255.1/', outbound)).toBe(true)
  expect(permits('http://10.2.0.1/', outbound)).toBe(false)
  expect(permits('http://192.168.1.7/', outbound)).toBe(true)
  expect(permits('http://192.168.1.8/', outbound)).toBe(false)
  expect(permits('http://[fd12::1]/', outbound)).toBe(true)
})

test('a name that resolves to private addresses is refused, and reached if it is allowed', async () => {
  const resolve = (outbound: { allow: string[]; openMode: boolean }) =>
    new Promise<{ error: unknown; addresses: unknown }>((done) => {
      guardOutbound('localhost', outbound).lookup('localhost', { all: true }, (error, addresses) =>
        done({ error, addresses }),
      )
    })
  expect((await resolve(CLOSED)).error).toMatchObject({ name: 'OutboundRefused' })
  for (const outbound of [
    { allow: [], openMode: true },
    { allow: ['LOCALHOST'], openMode: false },
  ]) {
    const { error, addresses } = await resolve(outbound)
    expect(error).toBeNull()
    expect(addresses).not.toHaveLength(0)
  }
})

test('an entry that could never be met is none', () => {
  const some = ['crm.internal', '10.1.2.3', '10.0.0.0/8', '::1', '[::1]', 'fd00::/8']
  const none = ['10.0.0.0/33', '10.0.0.0/', '10.0.0.0/x', 'crm.internal/8', 'crm.internal:80', '']
  expect(some.filter((entry) => !isOutboundEntry(entry))).toEqual([])
  expect(none.filter(isOutboundEntry)).toEqual([])
})
