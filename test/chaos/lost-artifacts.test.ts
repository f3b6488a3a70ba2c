// Goal: whatever becomes of the runner that wrote a file, readers see the files of the attempt that ended the run and
// no others, and what the others wrote is removed. Method: runners held at the boundary between upload and finish, then
// killed or frozen; a look at the folder and at the database.
import { mkdir, readdir, readFile, utimes, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { readEvents, readLog, request, send } from '../support/api.ts'
import { checkAll } from '../support/checker.ts'
import { type Holdfast, type Runner, startHoldfast } from '../support/holdfast.ts'
import { type ProbedRunner, startProbedRunner } from '../support/probed-runner.ts'
import { connect, type Sql } from '../support/sql.ts'
import { readRun, until } from './observe.ts'

let holdfast: Holdfast
let sql: Sql
let victim: ProbedRunner
let heir: Runner
/** Runs whose first attempt wrote a file and was lost. */
const takenOver: string[] = []

beforeAll(async () => {
  holdfast = await startHoldfast({ runners: 0, env: { LEASE_SECONDS: '2' } })
  sql = await connect(holdfast.databaseUrl)
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await sql?.[Symbol.asyncDispose]()
  await holdfast?.[Symbol.asyncDispose]()
})

async function filesOf(runId: string): Promise<string[]> {
  const folder = join(holdfast.dataDir, 'artifacts')
  const found = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => [])
  return found
    .filter((entry) => entry.isFile() && entry.parentPath.includes(runId))
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .sort()
}

const path = (runId: string, epoch: number) => `dev/${runId}/${epoch}/1-words.txt`

/** The victim has written its file and is held before it can say so. */
async function heldAfterUpload() {
  victim = await startProbedRunner(holdfast)
  const holding = await victim.hold('beforeFinish')
  const { runId } = await send(holdfast.url, '/file 5 /long 2')
  const held = await holding.held
  expect(held.runId).toBe(runId)
  expect(await filesOf(runId)).toEqual([path(runId, 1)])
  return { runId, held }
}

async function endsWithTheHeirsFile(runId: string) {
  await readLog(holdfast.url, runId)
  const run = await request(`${holdfast.url}/runs/${runId}`)
  expect(run.body).toMatchObject({
    state: 'succeeded',
    epoch: 2,
    artifacts: [{ name: 'words.txt' }],
  })
  const pointers = await sql('SELECT epoch, path FROM holdfast.artifacts WHERE run_id = $1', [
    runId,
  ])
  expect(pointers).toEqual([{ epoch: 2, path: path(runId, 2) }])
  const { body } = await request(`${holdfast.url}/runs/${runId}/artifacts/words.txt`)
  expect(body).toEqual({ text: 'word1 word2 word3 word4 word5' })
}

test('a runner killed between upload and finish leaves an orphan and no artifact', async () => {
  const { runId } = await heldAfterUpload()
  expect((await readRun(holdfast.url, runId)).state).toBe('running')
  expect((await request(`${holdfast.url}/runs/${runId}/artifacts/words.txt`)).status).toBe(404)
  victim.kill('SIGKILL')
  await victim.exited
  heir = await holdfast.startRunner()
  await endsWithTheHeirsFile(runId)
  takenOver.push(runId)
  heir.kill('SIGTERM')
  await heir.exited
})

test('a runner that comes back after it was taken over cannot show its file', async () => {
  const { runId, held } = await heldAfterUpload()
  victim.kill('SIGSTOP')
  heir = await holdfast.startRunner()
  await endsWithTheHeirsFile(runId)
  victim.kill('SIGCONT')
  held.goOn()
  await until('the zombie was refused or gave up', () =>
    /lease was lost|not ours any more/.test(victim.log()),
  )
  await endsWithTheHeirsFile(runId)
  // An upload of its own that arrives when all is over.
  const late = join(holdfast.dataDir, 'artifacts', path(runId, 1))
  await mkdir(join(late, '..'), { recursive: true })
  await writeFile(late, 'late')
  takenOver.push(runId)
  for (const runner of [victim, heir]) {
    runner.kill('SIGTERM')
    await runner.exited
  }
})

test('the collector takes what is nobody’s and leaves what may still count, and what is none of ours', async () => {
  heir = await holdfast.startRunner()
  const { runId } = await send(holdfast.url, '/file 3 /slow 60')
  await until('the file is written', async () => (await filesOf(runId)).length === 1)
  const folder = join(holdfast.dataDir, 'artifacts')
  const unknown = '01930000-0000-7000-8000-00000000000'
  const planted = {
    old: `dev/${unknown}1/1/1-a`,
    young: `dev/${unknown}2/1/1-a`,
    partial: `dev/${runId}/0/7-a.partial`,
    foreign: 'readme.txt',
  }
  for (const file of Object.values(planted)) {
    await mkdir(join(folder, file, '..'), { recursive: true })
    await writeFile(join(folder, file), 'x')
  }
  const longAgo = new Date(Date.now() - 2 * 86_400_000)
  await utimes(join(folder, planted.old), longAgo, longAgo)
  const gone = (file: string) =>
    readFile(join(folder, file)).then(
      () => false,
      () => true,
    )
  for (const file of [planted.old, planted.partial]) {
    await until(`${file} is removed`, () => gone(file))
  }
  for (const lost of takenOver) {
    await until('the file of the lost attempt is removed', () => gone(path(lost, 1)))
    await endsWithTheHeirsFile(lost)
  }
  expect(await filesOf(runId)).toEqual([path(runId, 1)])
  expect([await gone(planted.young), await gone(planted.foreign)]).toEqual([false, false])
  await request(`${holdfast.url}/runs/${runId}/cancel?wait=20`, { json: {} })
  await readEvents(holdfast.url, runId, { after: 0 })
  expect((await request(`${holdfast.url}/runs/${runId}/artifacts/words.txt`)).status).toBe(200)
})
