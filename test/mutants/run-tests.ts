import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { invariant, wait } from '@holdfast/std'

/** One test file, or those of its tests whose names contain one of `names`. */
export type Tests = { readonly file: string; readonly names: readonly string[] }

export type Outcome =
  | { readonly kind: 'passed' }
  | { readonly kind: 'failed'; readonly message: string }
  /** It did not end by itself in time. */
  | { readonly kind: 'hung' }
  /** No test passed and none failed, or one of `names` names none. */
  | { readonly kind: 'nothing ran'; readonly message: string }
  | { readonly kind: 'stopped' }

type Report = {
  testResults: {
    message: string
    assertionResults: { fullName: string; status: string; failureMessages: string[] }[]
  }[]
}

/** A test that fails by its own limit says more than one that is killed by ours. */
const TEST_MS = 30_000
const RUN_MS = 180_000
/** What a killed run's services are given to end by themselves. */
const GRACE_MS = 3000

/** Runs tests of the tree at `root`; whatever happens, nothing that they started is left. */
export async function runTests(
  root: string,
  tests: Tests,
  databaseUrl: string,
  signal: AbortSignal,
): Promise<Outcome> {
  if (signal.aborted) return { kind: 'stopped' }
  const file = join(root, 'mutant-report.json')
  await rm(file, { force: true })
  const limits = ['--bail=1', '--testTimeout', `${TEST_MS}`, '--hookTimeout', `${TEST_MS}`]
  const reporter = ['--reporter=json', `--outputFile=${file}`]
  const named = tests.names.length > 0 ? ['-t', tests.names.map(escaped).join('|')] : []
  const program = join(root, 'node_modules/vitest/vitest.mjs')
  const args = [program, 'run', tests.file, ...limits, ...reporter, ...named]
  const vitest = spawn(process.execPath, args, {
    cwd: root,
    stdio: 'ignore',
    env: { ...process.env, TEST_DATABASE_URL: databaseUrl },
  })
  const { pid } = vitest
  invariant(pid, 'vitest has been started')
  const exited = once(vitest, 'exit')
  const over = new AbortController()
  const limit = AbortSignal.any([signal, over.signal])
  const late = wait(RUN_MS, limit).then(
    () => true,
    () => signal.aborted,
  )
  const ended = await Promise.race([exited, late.then((cut) => (cut ? null : exited))])
  over.abort()
  if (ended === null) {
    await killTree(pid)
    return { kind: signal.aborted ? 'stopped' : 'hung' }
  }
  return judged(tests, ended[0] as number | null, await readFile(file, 'utf8').catch(() => ''))
}

function judged(tests: Tests, code: number | null, text: string): Outcome {
  if (text === '') return { kind: 'failed', message: `vitest ended with ${code} and said nothing` }
  const { testResults }: Report = JSON.parse(text)
  const results = testResults.flatMap(({ assertionResults }) => assertionResults)
  const messages = [
    ...results.flatMap(({ failureMessages }) => failureMessages),
    ...testResults.map(({ message }) => message),
  ]
  const message = messages.find(Boolean)?.split('\n')[0]
  if (code !== 0) return { kind: 'failed', message: message ?? `exit code ${code}` }
  const passed = results.filter(({ status }) => status === 'passed').map((test) => test.fullName)
  if (passed.length === 0) return { kind: 'nothing ran', message: `nothing in ${tests.file}` }
  const missing = tests.names.find((name) => !passed.some((fullName) => fullName.includes(name)))
  if (missing === undefined) return { kind: 'passed' }
  return { kind: 'nothing ran', message: `${tests.file} has no test named ${missing}` }
}

/** Services have process groups of their own, so what descends from a run is looked up before anything ends. */
async function killTree(root: number): Promise<void> {
  const { stdout } = await promisify(execFile)('ps', ['-A', '-o', 'pid=,ppid='])
  const parents = stdout.split('\n').map((line) => line.trim().split(/\s+/).map(Number))
  const tree = [root]
  for (const parent of tree) {
    for (const [pid, ppid] of parents) if (pid && ppid === parent) tree.push(pid)
  }
  // The tests first, so that they start nothing new; what is frozen hears nothing else than the last signal.
  kill(root, 'SIGKILL')
  for (const pid of tree) kill(pid, 'SIGTERM')
  await wait(GRACE_MS)
  for (const pid of tree) kill(pid, 'SIGKILL')
}

function kill(pid: number, signal: NodeJS.Signals) {
  try {
    process.kill(pid, signal)
  } catch (error) {
    const gone = error instanceof Error && 'code' in error && error.code === 'ESRCH'
    if (!gone) throw error
  }
}

function escaped(name: string): string {
  return name.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
}
