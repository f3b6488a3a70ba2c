// Breaks the code on purpose, one place at a time, in a copy of the tree, and expects the test that is named for it
// to fail. Usage: node test/mutants/run.ts [part of a mutant's name]
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

type Verdict = 'caught' | 'survived' | 'ran nothing'

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
    for (const mutant of mutants) {
      const startedAt = performance.now()
      const verdict = await tried(copy, mutant)
      const seconds = Math.round((performance.now() - startedAt) / 1000)
      process.stdout.write(`${verdict}  ${mutant.invariant}  ${mutant.name} (${seconds} s)\n`)
      if (verdict !== 'caught') missed.push(mutant.name)
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

async function tried(copy: string, mutant: Mutant): Promise<Verdict> {
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
    return await verdictOf(copy, mutant)
  } finally {
    await writeFile(file, text)
  }
}

async function verdictOf(copy: string, { test, only }: Mutant): Promise<Verdict> {
  const report = join(copy, 'mutant-report.json')
  await rm(report, { force: true })
  const limits = ['--testTimeout', `${TEST_MS}`, '--hookTimeout', `${TEST_MS}`]
  const args = ['run', test, ...limits, '--reporter=json', `--outputFile=${report}`]
  const vitest = spawn(
    process.execPath,
    [join(copy, 'node_modules/vitest/vitest.mjs'), ...args, ...(only ? ['-t', only] : [])],
    { cwd: copy, stdio: 'ignore' },
  )
  const [code] = await once(vitest, 'exit')
  const { numPassedTests, numFailedTests } = JSON.parse(await readFile(report, 'utf8'))
  if (code !== 0) return 'caught'
  return numPassedTests + numFailedTests > 0 ? 'survived' : 'ran nothing'
}
