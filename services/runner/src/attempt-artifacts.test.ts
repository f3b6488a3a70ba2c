// Goal: what an attempt may write, and what becomes of a body that is wrong, slow, endless or given up. Method: the
// files of one attempt on a real folder.
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { openArtifactStore } from '@holdfast/artifacts'
import { LIMITS } from '@holdfast/protocol'
import type { Lease } from '@holdfast/store'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { attemptArtifacts } from './attempt-artifacts.ts'

const TEXT = { mediaType: 'text/plain' }
const lease = { tenantId: 'acme', runId: '01930000-0000-7000-8000-000000000001', epoch: 3 } as Lease

let folder: string
let abort: AbortController
let artifacts: ReturnType<typeof attemptArtifacts>

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'holdfast-attempt-'))
  abort = new AbortController()
  artifacts = attemptArtifacts(store(), lease, abort.signal)
})

afterEach(() => rm(folder, { recursive: true, force: true }))

const store = () => openArtifactStore({ kind: 'folder', folder })

async function read(path = ''): Promise<string> {
  const file = await store().open(path)
  return file ? String(await buffer(file.body)) : 'nothing'
}

const files = async () => (await store().list('', 1000)).map(({ path }) => path)

/** Gives a chunk, then nothing for ever; says when it was asked for more and when it was closed. */
function silent() {
  const asked = Promise.withResolvers<void>()
  const closed = Promise.withResolvers<void>()
  let given = false
  const body = new Readable({
    read() {
      if (given) asked.resolve()
      else this.push('first')
      given = true
    },
    destroy(error, done) {
      closed.resolve()
      done(error)
    },
  })
  return { body, asked: asked.promise, closed: closed.promise }
}

test('text, bytes and streams of either are written, each under the attempt’s own folder', async () => {
  await artifacts.write('a.txt', TEXT, 'text ✓')
  await artifacts.write('b.bin', { mediaType: 'application/x-b; v="1"' }, Buffer.from('bytes'))
  await artifacts.write('c', TEXT, Readable.from(['st', 'ream']))
  await artifacts.write('d', TEXT, new Blob(['web']).stream())
  const contents = await Promise.all(artifacts.written.map(({ path }) => read(path)))
  expect(contents).toEqual(['text ✓', 'bytes', 'stream', 'web'])
  expect(artifacts.written.map(({ bytes }) => bytes)).toEqual([8, 5, 6, 3])
  for (const path of await files()) expect(path.startsWith(`acme/${lease.runId}/3/`)).toBe(true)
})

test.each([
  '../up',
  '/root',
  'a/b',
  'a\\b',
  '..',
  '.',
  '',
  'nul\0',
  'line\n',
  '\ud800',
  'x'.repeat(256),
])('a name that is not that of a file is refused: %j', async (name) => {
  const { body, closed } = silent()
  await expect(artifacts.write(name, TEXT, body)).rejects.toMatchObject({
    code: 'invalid_artifact',
  })
  await closed
  expect([artifacts.written, await files()]).toEqual([[], []])
})

test.each([
  '... .txt',
  '.hidden',
  'ünï cödé 报告.pdf',
  '<script>.html',
  '%2e%2e',
  'CON',
  'a:b',
  '"q"',
])('a strange name stays what it is, and its file stays in the folder: %j', async (name) => {
  await artifacts.write(name, TEXT, 'x')
  expect(artifacts.written).toMatchObject([{ name, bytes: 1 }])
  expect(await files()).toEqual([artifacts.written[0]?.path])
  expect(await readdir(folder)).toEqual(['acme'])
})

test.each(['', 'text', 'text/plain\r\nx: y', 'a/b/c', 'text/plain; charset'])(
  'a media type that is none is refused: %j',
  async (mediaType) => {
    await expect(artifacts.write('a', { mediaType }, 'x')).rejects.toMatchObject({
      kind: 'invalid',
    })
  },
)

test('the same name again replaces; two at once are a mistake, and the first one counts', async () => {
  await artifacts.write('a', TEXT, 'one')
  await artifacts.write('a', TEXT, 'second')
  expect(artifacts.written).toMatchObject([{ name: 'a', bytes: 6 }])
  expect(await read(artifacts.written[0]?.path)).toBe('second')
  const { promise: go, resolve } = Promise.withResolvers<void>()
  async function* waiting() {
    await go
    yield 'third'
  }
  const third = artifacts.write('a', TEXT, waiting())
  await expect(artifacts.write('a', TEXT, 'fourth')).rejects.toThrow('already')
  resolve()
  await third
  expect(await read(artifacts.written[0]?.path)).toBe('third')
})

test('a replacement that fails leaves what was there', async () => {
  await artifacts.write('a', TEXT, 'one')
  async function* failing() {
    yield 'tw'
    throw new Error('broken')
  }
  await expect(artifacts.write('a', TEXT, failing())).rejects.toMatchObject({
    name: 'AgentFailure',
    code: 'internal',
    cause: { message: 'broken' },
  })
  expect(await read(artifacts.written[0]?.path)).toBe('one')
  expect(await files()).toHaveLength(1)
})

test('a body beyond the limit fails the run for its size, and its source is closed', async () => {
  const chunk = Buffer.alloc(64 << 20)
  let closed = false
  async function* endless() {
    try {
      for (;;) yield chunk
    } finally {
      closed = true
    }
  }
  // On memory, because a gigabyte is a lot for a test's disk.
  let seen = 0
  const hollow = attemptArtifacts(
    {
      ...store(),
      async put(_path, body) {
        for await (const { byteLength } of body) seen += byteLength
        return { bytes: seen }
      },
    },
    lease,
    abort.signal,
  )
  await expect(hollow.write('a', TEXT, endless())).rejects.toMatchObject({
    name: 'AgentFailure',
    code: 'limit_exceeded',
  })
  expect([seen, closed]).toEqual([LIMITS.artifactBytesMax, true])
})

test('there is an end to their number', async () => {
  for (let at = 0; at < LIMITS.artifactsMax; at += 1) await artifacts.write(`${at}`, TEXT, 'x')
  await artifacts.write('0', TEXT, 'again')
  await expect(artifacts.write('more', TEXT, 'x')).rejects.toMatchObject({ code: 'limit_exceeded' })
})

test.each([5, null, undefined, {}, [1, 2]])('a body that is none is refused: %j', async (body) => {
  const wrong = body as unknown as string
  await expect(artifacts.write('a', TEXT, wrong)).rejects.toMatchObject({ kind: 'invalid' })
  expect(await files()).toEqual([])
})

test('an abort ends an upload whose source is silent, and closes the source', async () => {
  const { body, asked, closed } = silent()
  const writing = artifacts.write('a', TEXT, body)
  await asked
  abort.abort(new Error('cancel'))
  await expect(writing).rejects.toThrow('cancel')
  await closed
  expect([artifacts.written, await files()]).toEqual([[], []])
  await expect(artifacts.write('b', TEXT, 'x')).rejects.toThrow('cancel')
})

test('what is under way when the attempt is over is broken off, and nobody has to have waited for it', async () => {
  await artifacts.write('whole', TEXT, 'x')
  const { body, asked, closed } = silent()
  const half = artifacts.write('half', TEXT, body)
  await asked
  await artifacts.close()
  await closed
  expect(artifacts.written.map(({ name }) => name)).toEqual(['whole'])
  expect(await files()).toHaveLength(1)
  await expect(artifacts.write('late', TEXT, 'x')).rejects.toThrow('over')
  await expect(half).rejects.toThrow('over')
})
