// Breaks the code on purpose, one place at a time, in copies of the tree, and expects the test that is named for it to
// fail; before that, that it passes. Exit status 0 only if every mutant was caught.
// Usage: node --conditions=holdfast-source test/mutants/run.ts [parts of mutants' names] [--json FILE] [--jobs N]
import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import { startTemporary } from '../support/postgres.ts'
import { type Mutant, readMutants } from './mutant.ts'
import { openResults } from './results.ts'
import type { Tests } from './run-tests.ts'
import { openWorkbench, type Workbench } from './workbench.ts'

await main()

async function main() {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { json: { type: 'string' }, jobs: { type: 'string' } },
  })
  const stopping = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stopping.abort())
  const mutants = await readMutants(positionals)
  const results = openResults(mutants, values.json)

  await using stack = new AsyncDisposableStack()
  const { url } = stack.use(await startTemporary())
  const benches: Workbench[] = []
  for (let job = Number(values.jobs ?? availableParallelism()); job > 0; job -= 1) {
    benches.push(stack.use(await openWorkbench(url, stopping.signal)))
  }
  await share(benches, controlsOf(mutants), async (bench, tests) => {
    const outcome = await bench.run(tests)
    if (outcome.kind === 'passed' || outcome.kind === 'stopped') return
    const message = 'message' in outcome ? outcome.message : 'no end'
    throw new Error(`${tests.file} does not pass as it is: ${message}`)
  })
  await share(benches, [...mutants.entries()], async (bench, [at, mutant]) => {
    const startedAt = performance.now()
    const outcome = await bench.tried(mutant)
    await results.set(at, outcome, Math.round((performance.now() - startedAt) / 1000))
  })
  const { caught, all } = results.summary()
  process.stdout.write(`${caught} of ${all} were caught\n`)
  process.exitCode = all > 0 && caught === all ? 0 : 1
}

/** Each test that a mutant names, once; one run a file. */
function controlsOf(mutants: readonly Mutant[]): Tests[] {
  const byFile = Map.groupBy(mutants, ({ test }) => test)
  return [...byFile].map(([file, some]) => {
    const names = some.map(({ only }) => only)
    const whole = names.includes(undefined)
    return { file, names: whole ? [] : [...new Set(names.filter((name) => name !== undefined))] }
  })
}

/** Every bench takes the next item until there is none left. */
async function share<T>(
  benches: readonly Workbench[],
  items: readonly T[],
  work: (bench: Workbench, item: T) => Promise<void>,
): Promise<void> {
  const left = items.values()
  const shares = benches.map(async (bench) => {
    for (const item of left) await work(bench, item)
  })
  // A bench is not taken away while something is run on it.
  const failed = (await Promise.allSettled(shares)).find(({ status }) => status === 'rejected')
  if (failed?.status === 'rejected') throw failed.reason
}
