import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { broken, type Mutant } from './mutant.ts'
import { runTests, type Tests } from './run-tests.ts'

/** A copy of the tree in which one thing at a time may be broken. */
export type Workbench = AsyncDisposable & {
  /** Runs the tests as they are. */
  run(tests: Tests): ReturnType<typeof runTests>
  /** Runs the mutant's test with the mutant in place. */
  tried(mutant: Mutant): ReturnType<typeof runTests>
}

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const LEFT_OUT = new Set(['.git', '.holdfast', 'dist'])

/** `databaseUrl`: a server where each test makes databases of its own. `signal` ends what is being run. */
export async function openWorkbench(databaseUrl: string, signal: AbortSignal): Promise<Workbench> {
  const copy = await copyTree()
  const run = (tests: Tests) => runTests(copy, tests, databaseUrl, signal)
  return {
    run,
    async tried(mutant) {
      const file = join(copy, mutant.file)
      const text = await readFile(file, 'utf8')
      await writeFile(file, broken(text, mutant))
      try {
        return await run({ file: mutant.test, names: mutant.only ? [mutant.only] : [] })
      } finally {
        await writeFile(file, text)
      }
    },
    [Symbol.asyncDispose]: () => rm(copy, { recursive: true, force: true, maxRetries: 3 }),
  }
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
