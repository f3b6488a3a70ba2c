import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { cpus, totalmem } from 'node:os'
import type { Row } from './cell.ts'
import { barPicture } from './picture.ts'
import { SETTINGS } from './server.ts'
import { short } from './statistics.ts'

export type CellResult = { letter: string; title: string; rows: readonly Row[] }

const MARKS = ['<!-- measured: written by npm run bench -->', '<!-- end of what was measured -->']

export type Facts = { version: string; rounds: number; seconds: number }

type Kept = CellResult & { facts: string }

/** Keeps what a cell gave, so that cells can be measured at different times and stand on one page. */
export async function keepResult(folder: URL, result: CellResult, facts: Facts): Promise<void> {
  await mkdir(folder, { recursive: true })
  const kept: Kept = { ...result, facts: factsLine(facts) }
  await writeFile(new URL(`${result.letter}.json`, folder), `${JSON.stringify(kept, null, 1)}\n`)
}

/** Replaces the measured part of the page by what is kept, and leaves the rest of it as it is; draws the picture beside it. */
export async function writeReport(folder: URL, page: URL, picture: URL): Promise<void> {
  const [from = '', to = ''] = MARKS
  const text = await readFile(page, 'utf8')
  if (!text.includes(from) || !text.includes(to)) throw new Error(`${page.href} has no marks`)
  const files = (await readdir(folder)).sort()
  const results = await Promise.all(
    files.map(async (file) => JSON.parse(await readFile(new URL(file, folder), 'utf8')) as Kept),
  )
  const tables = results.map((result) => `${tableOf(result)}\n\n${result.facts}`)
  const settings = Object.entries(SETTINGS).map(([name, value]) => `\`${name}=${value}\``)
  const measured = [`PostgreSQL's settings: ${settings.join(', ')}.`, ...tables].join('\n\n')
  const before = text.slice(0, text.indexOf(from))
  await writeFile(page, `${before}${from}\n\n${measured}\n\n${text.slice(text.indexOf(to))}`)
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

function factsLine({ version, rounds, seconds }: Facts): string {
  const [cpu] = cpus()
  return (
    `${new Date().toISOString().slice(0, 10)}, ${cpus().length} × ${cpu?.model ?? 'unknown'}, ` +
    `${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}, PostgreSQL ${version}; server and load on the same ` +
    `machine. Medians of ${rounds} interleaved rounds of ${seconds} s.`
  )
}
