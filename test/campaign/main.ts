// npm run chaos -- [--seed S] [--minutes M] [--out FILE]: a campaign of faults against a whole Holdfast. Prints its
// figures, writes them as JSON, and exits with 0 only if nothing was violated and enough happened to mean something.
import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { runCampaign } from './campaign.ts'
import type { Figures } from './figures.ts'

const { values } = parseArgs({
  options: {
    seed: { type: 'string', default: `${Math.trunc(Math.random() * 2 ** 31)}` },
    minutes: { type: 'string', default: '3' },
    out: { type: 'string', default: '.holdfast/campaign.json' },
  },
})
const seed = Number(values.seed)
const minutes = Number(values.minutes)
if (!Number.isSafeInteger(seed) || !(minutes > 0)) {
  process.stderr.write('chaos: --seed is a whole number, --minutes is a number above 0\n')
  process.exit(2)
}

const began = performance.now()
const { figures, logs } = await runCampaign({ seed, minutes, say })
await mkdir(dirname(values.out), { recursive: true })
await writeFile(values.out, `${JSON.stringify(figures, null, 2)}\n`)
report(figures)
const held = figures.violations.length === 0 && figures.missing.length === 0
if (!held) await keepLogs()
say(`${held ? 'held' : 'BROKEN'}; ${values.out} has it all`)
process.exit(held ? 0 : 1)

function report(figures: Figures) {
  const { violations, missing, ...rest } = figures
  process.stdout.write(`${JSON.stringify(rest, null, 1)}\n`)
  for (const each of missing) say(`too little happened: ${each}`)
  for (const { invariant, runId, detail } of violations.slice(0, 50)) {
    say(`VIOLATION ${invariant}${runId ? `, run ${runId}` : ''}: ${detail.slice(0, 600)}`)
  }
  say(`${violations.length} violations`)
}

/** What the processes said, for whoever has to find out why. */
async function keepLogs() {
  const folder = `${values.out}.logs`
  await mkdir(folder, { recursive: true })
  for (const { name, log } of logs) {
    await writeFile(join(folder, `${name.replaceAll(' ', '-')}.log`), log)
  }
}

function say(line: string) {
  const seconds = Math.round((performance.now() - began) / 1000)
  process.stdout.write(`[${seconds} s] ${line}\n`)
}
