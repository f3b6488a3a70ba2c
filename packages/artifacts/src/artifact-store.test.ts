// Goal: both stores keep the same promises. Method: one contract, on a folder of its own and on a scripted S3 that
// checks signatures.
import { mkdtemp, readdir, rm, stat, utimes } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { expect, test } from 'vitest'
import type { ArtifactStore } from './artifact-store.ts'
import { folderStore } from './folder-store.ts'
import { s3Store } from './s3-store.ts'
import { scriptedS3 } from './testing/scripted-s3.ts'

const RUN = '01930000-0000-7000-8000-000000000001'
const { signal } = new AbortController()

async function folder() {
  const root = await mkdtemp(join(tmpdir(), 'holdfast-artifacts-'))
  const remove = () => rm(root, { recursive: true, force: true })
  return { root, store: folderStore(join(root, 'made', 'later')), [Symbol.asyncDispose]: remove }
}

async function s3() {
  const server = await scriptedS3()
  return {
    server,
    store: s3Store(server.place),
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  }
}

async function* body(...chunks: (string | Uint8Array)[]) {
  for (const chunk of chunks) yield Buffer.from(chunk)
}

async function read(store: ArtifactStore, path: string): Promise<Buffer | null> {
  const file = await store.open(path)
  if (!file) return null
  const content = await buffer(file.body)
  expect(content.length).toBe(file.bytes)
  return content
}

const paths = async (store: ArtifactStore, after = '', limit = 100) =>
  (await store.list(after, limit)).map(({ path }) => path)

/** Bytes that differ everywhere, so that parts in a wrong order are seen. */
function large(bytes: number): Buffer {
  const content = Buffer.alloc(bytes)
  for (let at = 0; at + 4 <= bytes; at += 4) content.writeUInt32LE(at, at)
  return content
}

const STORES = { folder, s3 }
const contract = test.each(Object.keys(STORES) as (keyof typeof STORES)[])

contract('%s: what was put is read back, whole and with its length', async (kind) => {
  await using place = await STORES[kind]()
  const { store } = place
  expect(
    await store.put(`t/${RUN}/1/1-a.txt`, body('he', '', 'llo'), 'text/plain', signal),
  ).toEqual({
    bytes: 5,
  })
  expect(String(await read(store, `t/${RUN}/1/1-a.txt`))).toBe('hello')
  expect(await store.put(`t/${RUN}/1/2-empty`, body(), 'text/plain', signal)).toEqual({ bytes: 0 })
  expect(await read(store, `t/${RUN}/1/2-empty`)).toEqual(Buffer.alloc(0))
  expect(await store.open(`t/${RUN}/1/3-none`)).toBeNull()
  expect(await store.open(`t/${RUN}/1/1-a.txt/below`)).toBeNull()
})

contract('%s: a body of many megabytes arrives as it was', async (kind) => {
  await using place = await STORES[kind]()
  const content = large(20 << 20)
  const chunks = [content.subarray(0, 9 << 20), content.subarray(9 << 20, (9 << 20) + 1)]
  const whole = body(...chunks, content.subarray((9 << 20) + 1))
  expect(await place.store.put('t/r/1/1-big', whole, 'text/plain', signal)).toEqual({
    bytes: content.length,
  })
  expect((await read(place.store, 't/r/1/1-big'))?.equals(content)).toBe(true)
})

contract(
  '%s: files are listed in the order of their paths, page by page, each once',
  async (kind) => {
    await using place = await STORES[kind]()
    const { store } = place
    expect(await paths(store)).toEqual([])
    const all = [
      'a/r/1/1-x',
      'a/r/1/2-x',
      'a/r/10/1-x',
      'a/r/2/1-x',
      'a-b/r/1/1-x',
      'a.b/r/1/1-x',
      'b/r/1/1-x',
    ]
    for (const path of all) await store.put(path, body('x'), 'text/plain', signal)
    const sorted = all.toSorted((a, b) => (a < b ? -1 : 1))
    expect(await paths(store)).toEqual(sorted)
    const paged: string[] = []
    for (let page = await paths(store, '', 2); page.length > 0; ) {
      paged.push(...page)
      page = await paths(store, paged.at(-1), 2)
    }
    expect(paged).toEqual(sorted)
    expect(await store.list('b', 1)).toMatchObject([{ path: 'b/r/1/1-x', bytes: 1 }])
    expect((await store.list('', 1))[0]?.modifiedAtMs).toBeGreaterThan(Date.now() - 60_000)
  },
)

contract('%s: removing takes a file or a whole folder, and nothing beside it', async (kind) => {
  await using place = await STORES[kind]()
  const { store } = place
  for (const path of ['a/r/1/1-x', 'a/r/1/2-x', 'a/r/10/1-x', 'a/r/2/1-x', 'a/s/1/1-x']) {
    await store.put(path, body('x'), 'text/plain', signal)
  }
  await store.remove('a/r/1/2-x')
  await store.remove('a/r/1/2-x')
  expect(await paths(store)).toEqual(['a/r/1/1-x', 'a/r/10/1-x', 'a/r/2/1-x', 'a/s/1/1-x'])
  await store.remove('a/r/1')
  expect(await paths(store)).toEqual(['a/r/10/1-x', 'a/r/2/1-x', 'a/s/1/1-x'])
  await store.remove('a/r')
  await store.remove('nobody')
  expect(await paths(store)).toEqual(['a/s/1/1-x'])
})

contract('%s: a body that fails leaves no file, and its failure comes out', async (kind) => {
  await using place = await STORES[kind]()
  async function* failing() {
    yield large(9 << 20)
    throw new Error('the source broke')
  }
  const put = place.store.put('t/r/1/1-x', failing(), 'text/plain', signal)
  await expect(put).rejects.toThrow('the source broke')
  expect(await place.store.open('t/r/1/1-x')).toBeNull()
  expect(await paths(place.store)).toEqual([])
  if ('server' in place) expect(place.server.uploads).toBe(0)
})

contract('%s: an abort in the middle leaves no file', async (kind) => {
  await using place = await STORES[kind]()
  const abort = new AbortController()
  async function* aborting() {
    yield large(9 << 20)
    abort.abort(new Error('enough'))
    yield large(9 << 20)
  }
  const put = place.store.put('t/r/1/1-x', aborting(), 'text/plain', abort.signal)
  await expect(put).rejects.toThrow('enough')
  expect(await paths(place.store)).toEqual([])
  if ('server' in place) expect(place.server.uploads).toBe(0)
})

contract('%s: files that are written while others are removed are not lost', async (kind) => {
  await using place = await STORES[kind]()
  const { store } = place
  await Promise.all(
    Array.from({ length: 40 }, async (_, at) => {
      await store.put(`t/r/${at}/1-x`, body('x'), 'text/plain', signal)
      if (at % 2 === 0) await store.remove(`t/r/${at}`)
    }),
  )
  expect(await paths(store)).toHaveLength(20)
})

test('a folder holds no path outside itself', async () => {
  await using place = await folder()
  for (const path of ['../x', 'a/../../x', '/etc/x', '.', '']) {
    await expect(place.store.put(path, body('x'), 'text/plain', signal)).rejects.toThrow('below')
    await expect(place.store.open(path)).rejects.toThrow('below')
    await expect(place.store.remove(path)).rejects.toThrow('below')
  }
  expect(await readdir(place.root)).toEqual([])
})

test('a folder that is emptied keeps no empty folders, and says how old its files are', async () => {
  await using place = await folder()
  await place.store.put('a/r/1/1-x', body('x'), 'text/plain', signal)
  const old = new Date('2020-01-01T00:00:00Z')
  await utimes(join(place.store.place, 'a/r/1/1-x'), old, old)
  expect(await place.store.list('', 9)).toMatchObject([{ modifiedAtMs: old.getTime() }])
  await place.store.remove('a/r/1/1-x')
  expect(await readdir(place.store.place)).toEqual([])
  expect((await stat(place.store.place)).isDirectory()).toBe(true)
})

test('what S3 cannot do for a moment is tried again, and a lost reply is no failure', async () => {
  await using place = await s3()
  const { server, store } = place
  server.failNext(503, 'lost', 500)
  await store.put('a/r/1/1-x', body('x'), 'text/plain', signal)
  server.failNext(429)
  expect(String(await read(store, 'a/r/1/1-x'))).toBe('x')
  expect(server.objects.get('of/holdfast/a/r/1/1-x')?.mediaType).toBe('text/plain')
})

test('the reply to the joining of parts may be lost', async () => {
  await using place = await s3()
  const content = large(9 << 20)
  async function* losing() {
    yield content
    // The last part, then the joining.
    place.server.failNext('none', 'lost')
  }
  await place.store.put('a/r/1/1-x', losing(), 'text/plain', signal)
  expect((await read(place.store, 'a/r/1/1-x'))?.equals(content)).toBe(true)
})

test('what S3 refuses is told with its code, and what lasts is told as temporary', async () => {
  await using place = await s3()
  const wrong = s3Store({ ...place.server.place, secretAccessKey: 'wrong' })
  await expect(wrong.put('a/r/1/1-x', body('x'), 'text/plain', signal)).rejects.toMatchObject({
    kind: 'internal',
    cause: { message: 'the answer was 403 (SignatureDoesNotMatch)' },
  })
  place.server.failNext(503, 503, 503, 503)
  await expect(place.store.open('a/r/1/1-x')).rejects.toMatchObject({ kind: 'unavailable' })
  const nowhere = s3Store({ ...place.server.place, bucket: 'nowhere' })
  await expect(nowhere.put('a', body('x'), 'text/plain', signal)).rejects.toMatchObject({
    code: 'artifacts_refused',
  })
})
