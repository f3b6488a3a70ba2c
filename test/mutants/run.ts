// Breaks the code on purpose, one place at a time, in a copy of the tree, and expects the test that is named for it
// to fail; before that, that it passes. Usage: node test/mutants/run.ts [part of a mutant's name]
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { stripTypeScriptTypes } from 'node:module'
import { tmpdir } from 'node:os'
import { basename, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'

type Mutant = {
  name: string
  invariant: string
  file: string
  /** Every place where it stands is changed. */
  find: string
  replace: string
  test: string
  /** Part of the name of the one test that is enough. */
  only?: string
}

type Report = {
  numPassedTests: number
  testResults: {
    message: string
    assertionResults: { status: string; failureMessages: string[] }[]
  }[]
}

/** `null`: all passed. */
type Failure = string | null

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const LEFT_OUT = new Set(['.git', '.holdfast', 'dist'])
const TEST_MS = 30_000

await main(process.argv[2] ?? '')

async function main(part: string) {
  const all: Mutant[] = JSON.parse(await readFile(new URL('mutants.json', import.meta.url), 'utf8'))
  const mutants = all.filter(({ name }) => name.includes(part))
  const copy = await copyTree()
  const missed: string[] = []
  try {
    const controls = new Map(mutants.map((mutant) => [`${mutant.test} ${mutant.only}`, mutant]))
    for (const [name, control] of controls) {
      const failure = await failureOf(copy, control)
      if (failure !== null) throw new Error(`${name} fails as it is: ${failure}`)
    }
    for (const mutant of mutants) {
      const startedAt = performance.now()
      const failure = await tried(copy, mutant)
      const seconds = Math.round((performance.now() - startedAt) / 1000)
      const verdict = failure === null ? 'SURVIVED' : `caught (${failure})`
      process.stdout.write(`${mutant.invariant} ${mutant.name}, ${seconds} s: ${verdict}\n`)
      if (failure === null) missed.push(mutant.name)
    }
  } finally {
    await rm(copy, { recursive: true, force: true })
  }
  process.stdout.write(`${mutants.length - missed.length} of ${mutants.length} were caught\n`)
  process.exitCode = missed.length === 0 && mutants.length > 0 ? 0 : 1
}

/** Links between the workspaces are relative, so they stay inside the copy; what they depend on is shared. */
async function copyTree(): Promise<string> {
  const copy = await mkdtemp(join(tmpdir(), 'holdfast-mutants-'))
  await cp(ROOT, copy, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (source) => {
      const path = relative(ROOT, source)
      return path !== 'node_modules' && !LEFT_OUT.has(basename(path))
    },
  })
  await symlink(join(ROOT, 'node_modules'), join(copy, 'node_modules'))
  return copy
}

async function tried(copy: string, mutant: Mutant): Promise<Failure> {
  const file = join(copy, mutant.file)
  const text = await readFile(file, 'utf8')
  if (!text.includes(mutant.find)) {
    throw new Error(`${mutant.name}: ${mutant.file} does not contain ${mutant.find}`)
  }
  const broken = text.replaceAll(mutant.find, () => mutant.replace)
  // A file that does not parse makes every test fail and proves nothing.
  stripTypeScriptTypes(broken)
  await writeFile(file, broken)
  try {
    return await failureOf(copy, mutant)
  } finally {
    await writeFile(file, text)
  }
}

async function failureOf(
  copy: string,
  { test, only }: Pick<Mutant, 'test' | 'only'>,
): Promise<Failure> {
  const file = join(copy, 'mutant-report.json')
  await rm(file, { force: true })
  const limits = ['--testTimeout', `${TEST_MS}`, '--hookTimeout', `${TEST_MS}`]
  const args = ['run', test, ...limits, '--reporter=json', `--outputFile=${file}`]
  const vitest = spawn(
    process.execPath,
    [join(copy, 'node_modules/vitest/vitest.mjs'), ...args, ...(only ? ['-t', only] : [])],
    { cwd: copy, stdio: 'ignore' },
  )
  const [code] = await once(vitest, 'exit')
  const report: Report = JSON.parse(await readFile(file, 'utf8'))
  if (code === 0 && report.numPassedTests > 0) return null
  if (code === 0) throw new Error(`${test} has no test named ${only}`)
  const messages = report.testResults.flatMap(({ message, assertionResults }) => [
    ...assertionResults.flatMap(({ failureMessages }) => failureMessages),
    message,
  ])
  return messages.find(Boolean)?.split('\n')[0] ?? `exit code ${code}`
}
