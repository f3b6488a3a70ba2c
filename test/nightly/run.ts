// What is too long for the gate: the deep model, every mutant, fifty killed runners, ten thousand runs, the random
// joins and what upstreams send under several seeds, the chaos suite again and again, and a long chaos campaign
// (--campaign-minutes, 30 unless told otherwise). Writes docs/campaign.json: seeds, commits and figures. Exit status 0
// only if all held. With `--only NAME,NAME` just the steps whose names contain one of these; the others stay as the
// file has them.
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { availableParallelism, tmpdir, totalmem } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const SEEDS = [1, 2, 3, 5, 8]
const CHAOS_ROUNDS = 2
const CAMPAIGN_SEED = 1
const CAMPAIGN_FILE = join(ROOT, 'docs/campaign.json')
const { values } = parseArgs({
  options: {
    'campaign-minutes': { type: 'string', default: '30' },
    only: { type: 'string', default: '' },
  },
})

/** A step carries its own commit and time: with `--only` a later call replaces some of them and keeps the others. */
type Step = {
  name: string
  commit: string
  startedAt: string
  seconds: number
  held: boolean
  figures: Record<string, unknown>
}
type Report = {
  numPassedTests: number
  numFailedTests: number
  /** What a test measured stands in its `meta`. */
  testResults: { assertionResults: { meta?: { figures?: Record<string, unknown> } }[] }[]
}
type Mutants = { caught: number; all: number; results: { name: string; verdict: string }[] }

const commit = execFileSync('git', ['rev-parse', 'HEAD'], { cwd: ROOT, encoding: 'utf8' }).trim()
const wanted = values.only.split(',').filter(Boolean)
const known = wanted.length > 0 ? await readSteps() : []
const steps: Step[] = []

await step('model', async () => {
  const { code, output } = await run('sh', ['test/model/check.sh', '--deep'])
  const checked = output.split('\n').filter(Boolean)
  return { held: code === 0, figures: { checked } }
})
await step('mutants', () =>
  reported(async (file) => {
    const args = ['--conditions=holdfast-source', 'test/mutants/run.ts', '--json', file]
    const { code } = await run(process.execPath, args)
    const { caught, all, results }: Mutants = JSON.parse(await readFile(file, 'utf8'))
    const missed = results.filter(({ verdict }) => verdict !== 'caught').map(({ name }) => name)
    return { held: code === 0, figures: { caught, all, missed } }
  }),
)
await step('takeover', () =>
  vitest(['test/chaos/gone-runner.test.ts', '-t', 'a killed runner'], { HOLDFAST_KILLS: '50' }),
)
await step('leaks', () => vitest(['test/integration/leaks.test.ts'], { HOLDFAST_RUNS: '10000' }))
for (const seed of SEEDS) {
  await step(`joins, seed ${seed}`, () =>
    vitest(['test/integration/stream-joins.test.ts'], { HOLDFAST_TEST_SEED: `${seed}` }),
  )
}
for (const seed of SEEDS) {
  await step(`fuzz of upstreams, seed ${seed}`, () =>
    vitest(['services/runner/src/agents/upstream-fuzz.test.ts'], {
      HOLDFAST_TEST_SEED: `${seed}`,
      HOLDFAST_FUZZ_BODIES: '20000',
    }),
  )
}
for (let round = 1; round <= CHAOS_ROUNDS; round += 1) {
  await step(`chaos, round ${round}`, () => vitest(['--project', 'chaos'], {}))
}
await step('chaos campaign', () =>
  reported(async (file) => {
    const args = ['--seed', `${CAMPAIGN_SEED}`, '--minutes', values['campaign-minutes']]
    const script = join(ROOT, 'test/campaign/main.ts')
    const source = '--conditions=holdfast-source'
    const { code } = await run(process.execPath, [source, script, ...args, '--out', file])
    const { commit: _, ...figures } = JSON.parse(await readFile(file, 'utf8'))
    return { held: code === 0, figures }
  }),
)

const held = steps.every((each) => each.held)
process.stdout.write(`${held ? 'everything held' : 'NOT everything held'}\n`)
process.exitCode = held ? 0 : 1

async function readSteps(): Promise<Step[]> {
  const { steps: before }: { steps: Step[] } = JSON.parse(await readFile(CAMPAIGN_FILE, 'utf8'))
  return before
}

/** After each step, so that an end in the middle keeps what was seen. */
async function write() {
  const campaign = {
    machine: { cores: availableParallelism(), memoryGiB: Math.round(totalmem() / 2 ** 30) },
    node: process.version,
    seeds: SEEDS,
    held: steps.every((each) => each.held),
    steps,
  }
  await writeFile(CAMPAIGN_FILE, `${JSON.stringify(campaign, null, 2)}\n`)
}

async function step(name: string, body: () => Promise<Pick<Step, 'held' | 'figures'>>) {
  if (wanted.length > 0 && !wanted.some((part) => name.includes(part))) {
    steps.push(...known.filter((before) => before.name === name))
    return
  }
  const startedAt = new Date().toISOString()
  const began = performance.now()
  const outcome = await body()
  const seconds = Math.round((performance.now() - began) / 1000)
  steps.push({ name, commit, startedAt, seconds, ...outcome })
  await write()
  process.stdout.write(`${outcome.held ? 'held' : 'BROKEN'}: ${name}, ${seconds} s\n`)
}

async function vitest(args: string[], env: Record<string, string>) {
  return await reported(async (file) => {
    const program = join(ROOT, 'node_modules/vitest/vitest.mjs')
    const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${file}`]
    const { code } = await run(process.execPath, [program, 'run', ...args, ...reporters], env)
    const report: Report = JSON.parse(await readFile(file, 'utf8'))
    const measured = report.testResults.flatMap(({ assertionResults }) =>
      assertionResults.flatMap(({ meta }) => meta?.figures ?? []),
    )
    const figures = {
      passed: report.numPassedTests,
      failed: report.numFailedTests,
      ...(measured.length > 0 ? { measured } : {}),
    }
    return { held: code === 0 && report.numPassedTests > 0, figures }
  })
}

/** Gives `body` a file for a program to write its report into. */
async function reported<T>(body: (file: string) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-nightly-'))
  try {
    return await body(join(folder, 'report.json'))
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

async function run(command: string, args: string[], env: Record<string, string> = {}) {
  const child = spawn(command, args, {
    cwd: ROOT,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let output = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text
    process.stdout.write(text)
  })
  const [code] = await once(child, 'close')
  return { code: code as number | null, output }
}
