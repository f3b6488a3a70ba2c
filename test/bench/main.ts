// npm run bench -- [--quick] [--cells a,b] [--loads L,M] [--seconds S] [--rounds R] [--profile] [--write]: measures and prints tables;
// with --write they go into docs/performance.md. With --quick only ratios are looked at, and a broken one fails.
import { mkdir } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { medians, type Row } from './cell.ts'
import { CELLS } from './cells.ts'
import { quick } from './quick/quick.ts'
import { keepResult, tableOf, writeReport } from './report.ts'
import { openServer } from './server.ts'
import { COUNT_STATEMENTS, widestStatements } from './statements.ts'
import { short } from './statistics.ts'

const ROOT = new URL('../../', import.meta.url)
const RESULTS = new URL('.holdfast/bench/', ROOT)
const PROFILES = fileURLToPath(new URL('.holdfast/profiles', ROOT))

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    cells: { type: 'string', default: CELLS.map(({ letter }) => letter).join(',') },
    loads: { type: 'string' },
    seconds: { type: 'string', default: '10' },
    rounds: { type: 'string', default: '3' },
    profile: { type: 'boolean', default: false },
    write: { type: 'boolean', default: false },
  },
})
const began = performance.now()
if (values.quick) {
  process.exit((await quick(say)) ? 0 : 1)
}
await measureAll(values.cells.split(','), Number(values.seconds), Number(values.rounds))
process.exit(0)

async function measureAll(letters: readonly string[], seconds: number, rounds: number) {
  const profileFolder = values.profile ? PROFILES : undefined
  await using server = await openServer(profileFolder ? COUNT_STATEMENTS : {})
  if (profileFolder) await mkdir(profileFolder, { recursive: true })
  for (const { letter, title, measurements } of CELLS) {
    if (!letters.includes(letter)) continue
    const wanted = measurements.filter(
      ({ load }) => values.loads?.split(',').includes(load) ?? true,
    )
    const measured = wanted.map((measurement) => ({
      measurement,
      found: [] as Row['values'][],
    }))
    // By turns, so that what else the machine does meets all of them alike.
    for (let round = 1; round <= rounds; round += 1) {
      for (const { measurement, found } of measured) {
        const { system, load, measure } = measurement
        if (profileFolder) await widestStatements(server)
        const result = await measure({ server, seconds, profileFolder })
        found.push(result)
        if (profileFolder) for (const each of await widestStatements(server)) say(each)
        say(`(${letter}) ${round}/${rounds} ${system}, ${load}: ${line(result)}`)
      }
    }
    const rows = measured.map(({ measurement: { system, load }, found }) => ({
      system,
      load,
      values: medians(found),
    }))
    await keepResult(RESULTS, { letter, title, rows }, { version: server.version, rounds, seconds })
    process.stdout.write(`\n${tableOf({ letter, title, rows })}\n\n`)
  }
  if (values.write)
    await writeReport(
      RESULTS,
      new URL('docs/performance.md', ROOT),
      new URL('docs/performance.svg', ROOT),
    )
}

function line(found: Row['values']): string {
  return Object.entries(found)
    .map(([name, value]) => `${name} ${short(value)}`)
    .join(', ')
}

function say(text: string) {
  process.stdout.write(`[${Math.round((performance.now() - began) / 1000)} s] ${text}\n`)
}
