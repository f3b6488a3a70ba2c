// Goal: an agent of the user's, in a folder of the user's, does what its author wrote, and what its code does wrong
// reaches nobody else. Method: real runners, files written by the test.
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Message } from '@holdfast/protocol'
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from 'vitest'
import { cancel, until } from '../chaos/observe.ts'
import { request, send } from '../support/api.ts'
import { attach, checkAll, checkRun } from '../support/checker.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { startChild } from '../support/processes.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const REPORT = join(ROOT, 'test/support/agents/report.ts')

let holdfast: Holdfast

beforeAll(async () => {
  const agents = { report: { type: 'module', path: REPORT }, demo: { type: 'demo' } }
  holdfast = await startHoldfast({ agents: { agents } })
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
})

async function folderWith(files: Record<string, string>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-user-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true })
    await writeFile(join(folder, name), text)
  }
  return folder
}

const agentsFile = (files: Record<string, string>) =>
  JSON.stringify({
    agents: Object.fromEntries(
      Object.entries(files).map(([name, path]) => [name, { type: 'module', path }]),
    ),
  })

const saying = (text: string) => `
import { defineAgent } from '@holdfast/agent-kit'
export default defineAgent({ run: (run) => run.text(${text}) })
`

async function ask(message: string, more: Record<string, unknown> = {}) {
  const { runId } = await send(holdfast.url, message, more)
  return checkRun(holdfast.url, runId)
}

const resultOf = (log: Awaited<ReturnType<typeof checkRun>>['log']) =>
  (log.at(-1)?.event as { result?: unknown } | undefined)?.result

test('an agent in any folder imports the kit, its own files and packages of its own', async () => {
  const folder = await folderWith({
    'agents.json': agentsFile({ mine: './deep/mine.ts' }),
    'deep/mine.ts': `import { word } from './word.ts'\nimport other from 'other'\n${saying('`${word} ${other}`')}`,
    'deep/word.ts': 'export const word: string = "hello"',
    'node_modules/other/package.json': '{ "name": "other", "main": "main.js" }',
    'node_modules/other/main.js': 'module.exports = "there"',
  })
  const runner = await holdfast.startRunner({ HOLDFAST_AGENTS: join(folder, 'agents.json') })
  const { text } = await ask('hi', { agent: 'mine' })
  expect(text).toBe('hello there')
  expect(runner.log()).not.toContain('Warning')
})

test('an author’s editor knows the kit by a tsconfig that extends the kit’s, and sees what is wrong', async () => {
  const wrong = 'export const early = (run: Run) => run.group((g) => g.spawn(() => 1).value)'
  const folder = await folderWith({
    'tsconfig.json': JSON.stringify({
      extends: join(ROOT, 'packages/agent-kit/tsconfig.agent.json'),
      include: ['*.ts'],
    }),
    'good.ts': saying('String(run.attempt.toFixed())'),
    'package.json': '{ "type": "module" }',
  })
  const check = () =>
    promisify(execFile)(join(ROOT, 'node_modules/.bin/tsc'), ['-p', folder], { cwd: ROOT })
  await expect(check()).resolves.toMatchObject({ stdout: '' })
  await writeFile(
    join(folder, 'bad.ts'),
    `import type { Run } from '@holdfast/agent-kit'\n${wrong}`,
  )
  await expect(check()).rejects.toMatchObject({
    stdout: expect.stringContaining("Property 'value' does not exist on type 'Child<number>'"),
  })
})

test('a file that cannot be an agent stops the runner with one line that names it and the reason', async () => {
  const files = {
    none: ['./none.ts', null, 'Cannot find module'],
    throws: ['./throws.ts', 'throw new Error("no key set")', 'Error: no key set'],
    syntax: ['./syntax.ts', 'const a = 1\nconst = 2', '(line 2)'],
    shape: ['./shape.ts', 'export default { run() {} }', 'its default export is a plain object'],
    bare: ['./bare.ts', 'export const run = 1', 'it has no default export'],
    lost: ['./lost.ts', 'import "no-such-package"', "Cannot find package 'no-such-package'"],
    kit: ['./kit.ts', saying('').replace('run:', 'go:'), 'run must be a function'],
  } as const
  const folder = await folderWith({
    'agents.json': agentsFile(
      Object.fromEntries(Object.entries(files).map(([name, [path]]) => [name, path])),
    ),
    ...Object.fromEntries(
      Object.values(files).flatMap(([path, text]) => (text === null ? [] : [[path, text]])),
    ),
  })
  const env = {
    DATABASE_URL: holdfast.databaseUrl,
    HOLDFAST_AGENTS: join(folder, 'agents.json'),
  }
  const refused = await startChild('runner', env).catch((error: Error) => error)
  if (!(refused instanceof Error)) throw new Error('the runner started')
  const [, line = '', ...more] = refused.message.split('\n')
  expect(more).toEqual([''])
  for (const [name, [path, , reason]] of Object.entries(files)) {
    expect(line).toContain(`agent ${name}: module ${join(folder, path)}: `)
    expect(line).toContain(reason)
  }
})

test('a changed file is used by the next run, a broken one is not, and running code stays as it was', async () => {
  const folder = await folderWith({
    'agents.json': agentsFile({ live: './live.ts' }),
    'live.ts': `import { word } from './word.ts'\n${saying('word')}`,
    'word.ts': 'export const word = "first"',
  })
  const env = { HOLDFAST_AGENTS: join(folder, 'agents.json') }
  const runner = await holdfast.startRunner(env, ['services/runner/src/main.ts', '--reload'])
  const say = async () => (await ask('hi', { agent: 'live' })).text
  const logged = (what: string, times: number) =>
    until(what, () => runner.log().split(what).length > times)
  expect(await say()).toBe('first')
  await writeFile(join(folder, 'word.ts'), 'export const word = "second"')
  await logged('a changed agent was loaded', 1)
  expect(await say()).toBe('second')
  await writeFile(join(folder, 'word.ts'), 'export const word = ')
  await logged('a changed agent is broken', 1)
  expect(runner.log()).toContain(join(folder, 'live.ts'))
  expect(runner.log()).toContain(`(line 1 of ${join(folder, 'word.ts')})`)
  expect(await say()).toBe('second')
  const slow = `async (run) => { await run.text('old ', await run.sleep(1500)); await run.text(word) }`
  await writeFile(
    join(folder, 'live.ts'),
    `import { word } from './other.ts'\n${saying('').replace(/\(run\) => .*\)/, `${slow} })`)}`,
  )
  await writeFile(join(folder, 'other.ts'), 'export const word = "third"')
  await logged('a changed agent was loaded', 2)
  const running = await send(holdfast.url, 'hi', { agent: 'live' })
  await until('it runs', async () => {
    const { body } = await request(`${holdfast.url}/runs/${running.runId}`)
    return body['state'] === 'running'
  })
  await writeFile(join(folder, 'other.ts'), 'export const word = "fourth"')
  await logged('a changed agent was loaded', 3)
  expect((await checkRun(holdfast.url, running.runId)).text).toBe('old third')
  expect(await say()).toBe('old fourth')
})

test('three parallel tools of which one throws: the others are cancelled, in the log and in the next turn’s history', async () => {
  const first = await ask('three', { agent: 'report' })
  expect(first.run).toMatchObject({ state: 'failed', error: { code: 'agent_error' } })
  const results = first.messages.flatMap(({ message }) =>
    message.role === 'tool' ? [message.content] : [],
  )
  expect(results).toEqual(['cancelled', 'cancelled', 'failed'])
  expect(JSON.stringify(first.log)).not.toContain('secret')
  const { conversationId } = first.run
  const next = await ask('history', { agent: 'report', conversationId })
  const history = resultOf(next.log) as Message[]
  expect(history.map(({ role }) => role)).toEqual([
    'user',
    ...Array(3).fill(['assistant', 'tool']).flat(),
    'user',
  ])
})

test('what an agent throws ends its run as agent_error, and its words stay in the log', async () => {
  const { run, log } = await ask('throws', { agent: 'report' })
  expect(run).toMatchObject({ state: 'failed', error: { code: 'agent_error' } })
  expect(JSON.stringify([run, log])).not.toContain('secret')
  expect(holdfast.runners[0]?.log()).toContain('the provider says: secret')
})

test('an agent that goes on after a cancel is refused, reported and waited for within a bound', async () => {
  const { url } = holdfast
  const { runId } = await send(url, 'deaf', { agent: 'report' })
  await attach(url, runId).seen(({ type }) => type === 'TEXT_MESSAGE_END')
  const cancelledAt = performance.now()
  expect(await cancel(url, runId)).toBe(202)
  const { run, text, messages } = await checkRun(url, runId)
  expect(performance.now() - cancelledAt).toBeLessThan(7000)
  expect(run.outcome).toBe('cancelled')
  expect(text).toBe('I begin. ')
  expect(messages.at(-1)?.status).toBe('partial')
  const reported = holdfast.runners[0]
    ?.log()
    .split('\n')
    .find((line) => line.includes('"stuck"'))
  expect(reported).toContain(runId)
})

test('a promise that nobody awaits is reported with its run and takes nobody with it', async () => {
  const other = await send(holdfast.url, 'waits', { agent: 'report' })
  const { run, text } = await ask('strays', { agent: 'report' })
  expect(run.outcome).toBe('success')
  expect(text).toBe('I went on.')
  const reported = await until('the report', () =>
    holdfast.runners[0]
      ?.log()
      .split('\n')
      .find((line) => line.includes('nobody awaits this')),
  )
  expect(reported).toContain(run.runId)
  expect((await checkRun(holdfast.url, other.runId)).text).toBe('I wait. I am done.')
})

test('an exception that nobody can catch fails its own run alone', async () => {
  const other = await send(holdfast.url, 'waits', { agent: 'report' })
  const { run, text, messages } = await ask('explodes', { agent: 'report' })
  expect(run).toMatchObject({ state: 'failed', error: { code: 'agent_error' }, attemptsUsed: 1 })
  expect(text).toBe('I begin. ')
  expect(messages.at(-1)?.status).toBe('partial')
  expect((await checkRun(holdfast.url, other.runId)).text).toBe('I wait. I am done.')
  const reported = holdfast.runners[0]
    ?.log()
    .split('\n')
    .find((line) => line.includes('nobody catches'))
  expect(reported).toContain(run.runId)
})

test('an agent knows on whose behalf it works, writes files and asks people', async () => {
  const who = await ask('principal', { agent: 'report' })
  expect(resultOf(who.log)).toEqual({ tenant: 'dev', user: 'dev' })
  const file = await ask('file', { agent: 'report' })
  expect(file.run).toMatchObject({ artifacts: [{ name: 'report.txt', mediaType: 'text/plain' }] })
  const asked = await ask('asks', { agent: 'report' })
  expect(asked.run.outcome).toBe('interrupt')
  expect(asked.log.at(-1)?.event).toMatchObject({
    outcome: { type: 'interrupt', interrupts: [{ reason: 'approval', message: 'Send it?' }] },
  })
})
