// Goal: a file that a run leaves can be had by whoever may see the run, once it has ended, and by nobody else.
// Method: one Holdfast of real processes with tokens, the demo agent's /file, plain HTTP, and a look at the folder.
import { readdir, readlink, rm } from 'node:fs/promises'
import { get as httpGet } from 'node:http'
import { join } from 'node:path'
import { SignJWT } from 'jose'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readEvents, request, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { until } from '../support/readers.ts'

const SECRET = 'a secret of at least thirty-two bytes'
/** Housekeeping comes every ten seconds, give or take. */
const LIMIT_MS = 20_000
const ISO = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)

let holdfast: Holdfast
let ada: Record<string, string>
let eve: Record<string, string>
let other: Record<string, string>

beforeAll(async () => {
  holdfast = await startHoldfast({ env: { AUTH_JWT_SECRET: SECRET } })
  ada = await bearer('ada', 'acme')
  eve = await bearer('eve', 'acme')
  other = await bearer('ada', 'Acme & Söhne/..')
})

afterAll(() => holdfast[Symbol.asyncDispose]())

async function bearer(user: string, tenant: string) {
  const token = new SignJWT({ tenant }).setProtectedHeader({ alg: 'HS256' }).setSubject(user)
  const signed = await token.setExpirationTime('1h').sign(new TextEncoder().encode(SECRET))
  return { authorization: `Bearer ${signed}` }
}

function get(path: string, headers = ada, method = 'GET') {
  return request(`${holdfast.url}${path}`, { headers, method })
}

async function ended(message: string, headers = ada) {
  const sent = await send(holdfast.url, message, {}, headers)
  await readEvents(holdfast.url, sent.runId, { after: 0, headers })
  const { body } = await get(`/runs/${sent.runId}`, headers)
  return { ...sent, artifacts: body['artifacts'] as { name: string; url: string }[], body }
}

/** Paths of the files that are there, below the artifacts' folder. */
async function files(): Promise<string[]> {
  const folder = join(holdfast.dataDir, 'artifacts')
  const found = await readdir(folder, { recursive: true }).catch(() => [])
  return found.filter((path) => path.endsWith('.txt')).sort()
}

async function hasFile(runId: string): Promise<boolean> {
  return (await files()).some((path) => path.includes(runId))
}

test('a run that succeeded lists its file, and the file is had whole, to be saved and not to be shown', async () => {
  const { runId, artifacts } = await ended('/file 3 /long 1')
  const url = `/runs/${runId}/artifacts/words.txt`
  const mediaType = 'text/plain; charset=utf-8'
  expect(artifacts).toEqual([{ name: 'words.txt', mediaType, bytes: 17, url, createdAt: ISO }])
  const { status, headers, body } = await get(url)
  expect([status, body]).toEqual([200, { text: 'word1 word2 word3' }])
  expect(Object.fromEntries(headers)).toMatchObject({
    'content-type': mediaType,
    'content-length': '17',
    'content-disposition': `attachment; filename="words.txt"; filename*=UTF-8''words.txt`,
    'content-security-policy': 'sandbox',
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
  })
  const head = await get(url, ada, 'HEAD')
  expect([head.status, head.headers.get('content-length'), head.body]).toEqual([
    200,
    '17',
    { text: '' },
  ])
})

test('before the end there is no file to be had, though it is written', async () => {
  const { runId } = await send(holdfast.url, '/file 4 /slow 60', {}, ada)
  await until('the file is there', LIMIT_MS, () => hasFile(runId))
  expect((await get(`/runs/${runId}`)).body).toMatchObject({ state: 'running', artifacts: [] })
  expect((await get(`/runs/${runId}/artifacts/words.txt`)).status).toBe(404)
  await request(`${holdfast.url}/runs/${runId}/cancel?wait=20`, { json: {}, headers: ada })
  expect((await get(`/runs/${runId}`)).body).toMatchObject({
    state: 'stopped',
    artifacts: [{ name: 'words.txt' }],
  })
  expect((await get(`/runs/${runId}/artifacts/words.txt`)).status).toBe(200)
})

test('a run that failed keeps what it had written', async () => {
  const { body, artifacts } = await ended('/file 2 /fail')
  expect(body).toMatchObject({ state: 'failed', artifacts: [{ name: 'words.txt' }] })
  expect((await get(artifacts[0]?.url ?? '')).body).toEqual({ text: 'word1 word2' })
})

test('of another tenant, another user and an unknown name there is nothing', async () => {
  const mine = await ended('/file 1 /long 1')
  const theirs = await ended('/file 2 /long 1', other)
  const [path] = [mine.artifacts[0]?.url ?? '']
  for (const headers of [eve, other, {}]) {
    const { status } = await get(path, headers as Record<string, string>)
    expect([401, 404]).toContain(status)
  }
  expect((await get(theirs.artifacts[0]?.url ?? '', other)).body).toEqual({ text: 'word1 word2' })
  const names = ['nothing', 'WORDS.TXT', '..%2Fwords.txt', '%2e%2e', '1-words.txt', 'a'.repeat(900)]
  for (const name of names) {
    const { status, body } = await get(`/runs/${mine.runId}/artifacts/${name}`)
    expect([name, status, body['code']]).toEqual([name, 404, 'not_found'])
  }
})

test('a file that is gone from the store is told from one that never was', async () => {
  const { runId, artifacts } = await ended('/file 1 /long 1')
  const [path] = (await files()).filter((file) => file.includes(runId))
  await rm(join(holdfast.dataDir, 'artifacts', path ?? ''))
  for (const method of ['GET', 'HEAD']) {
    expect((await get(artifacts[0]?.url ?? '', ada, method)).status).toBe(410)
  }
  expect((await get(artifacts[0]?.url ?? '')).body).toMatchObject({ code: 'artifact_gone' })
})

test('a large file reaches a slow reader whole, and one that leaves costs nothing', async () => {
  const { artifacts } = await ended('/file 200000 /long 1')
  const url = `${holdfast.url}${artifacts[0]?.url ?? ''}`
  const bytes = await new Promise<number>((resolve, reject) => {
    const reading = httpGet(url, { headers: ada }, (response) => {
      let count = 0
      response.on('data', (chunk: Buffer) => {
        count += chunk.length
        response.pause()
        setImmediate(() => response.resume())
      })
      response.on('end', () => resolve(count))
    })
    reading.on('error', reject)
  })
  expect(bytes).toBeGreaterThan(2_000_000)
  const pid = holdfast.bffs[0]?.pid ?? 0
  const before = await openFiles(pid)
  await Promise.all(
    Array.from({ length: 20 }, async () => {
      const leave = new AbortController()
      const { body } = await fetch(url, { headers: ada, signal: leave.signal })
      await body?.getReader().read()
      leave.abort()
    }),
  )
  await until('the files are closed again', LIMIT_MS, async () => (await openFiles(pid)) <= before)
})

/** How many of the artifacts a process holds open. */
async function openFiles(pid: number): Promise<number> {
  const open = await readdir(`/proc/${pid}/fd`)
  const targets = open.map((fd) => readlink(`/proc/${pid}/fd/${fd}`).catch(() => ''))
  return (await Promise.all(targets)).filter((target) => target.includes('words.txt')).length
}

test('with a conversation that is deleted its files go, also when its run was still writing', async () => {
  const past = await ended('/file 1 /long 1')
  const { runId, conversationId } = await send(holdfast.url, '/file 4 /slow 60', {}, ada)
  await until('the file is there', LIMIT_MS, () => hasFile(runId))
  for (const conversation of [past.conversationId, `${conversationId}?cancel=true`]) {
    const path = `${holdfast.url}/conversations/${conversation}`
    expect((await request(path, { method: 'DELETE', headers: ada })).status).toBe(204)
  }
  expect((await get(past.artifacts[0]?.url ?? '')).status).toBe(404)
  for (const id of [past.runId, runId]) {
    await until('its file is removed', LIMIT_MS, async () => !(await hasFile(id)))
  }
})
