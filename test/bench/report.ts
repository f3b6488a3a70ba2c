import { readFile, writeFile } from 'node:fs/promises'
import { cpus, totalmem } from 'node:os'
import type { Row } from './cell.ts'
import { barPicture } from './picture.ts'
import { SETTINGS } from './server.ts'
import { short } from './statistics.ts'

export type CellResult = { letter: string; title: string; rows: readonly Row[] }

const MARKS = ['<!-- measured: written by npm run bench -->', '<!-- end of what was measured -->']

/** Replaces the measured part of the page and leaves the rest of it as it is; draws the picture beside it. */
export async function writeReport(
  page: URL,
  picture: URL,
  results: readonly CellResult[],
  facts: { version: string; rounds: number; seconds: number },
): Promise<void> {
  const [from = '', to = ''] = MARKS
  const text = await readFile(page, 'utf8')
  const before = text.slice(0, text.indexOf(from))
  const after = text.slice(text.indexOf(to))
  if (!text.includes(from) || !text.includes(to)) throw new Error(`${page} has no marks`)
  const measured = [machine(facts), ...results.map(tableOf)].join('\n\n')
  await writeFile(page, `${before}${from}\n\n${measured}\n\n${after}`)
  await writeFile(picture, barPicture(results))
}

export function tableOf({ letter, title, rows }: CellResult): string {
  const columns = [...new Set(rows.flatMap(({ values }) => Object.keys(values)))].filter((column) =>
    rows.some(({ values }) => Number.isFinite(values[column])),
  )
  const head = ['system', 'load', ...columns]
  const lines = rows.map(({ system, load, values }) => [
    system,
    load,
    ...columns.map((column) => short(values[column] ?? Number.NaN)),
  ])
  const all = [head, head.map((_, index) => (index < 2 ? '---' : '--:')), ...lines]
  return `### (${letter}) ${title}\n\n${all.map((line) => `| ${line.join(' | ')} |`).join('\n')}`
}

function machine({
  version,
  rounds,
  seconds,
}: {
  version: string
  rounds: number
  seconds: number
}) {
  const settings = Object.entries(SETTINGS).map(([name, value]) => `${name}=${value}`)
  const [cpu] = cpus()
  return [
    `${new Date().toISOString().slice(0, 10)}, ${cpus().length} × ${cpu?.model ?? 'unknown'}, ` +
      `${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}, PostgreSQL ${version} on the same machine, ` +
      `as is the load. Medians of ${rounds} interleaved rounds of ${seconds} s.`,
    `PostgreSQL's settings: ${settings.map((setting) => `\`${setting}\``).join(', ')}.`,
  ].join('\n\n')
}
