import type { CellResult } from './report.ts'
import { short } from './statistics.ts'

const WIDTH = 760
const LABEL = 330
const BAR = 18
const STEP = 26

/** What each cell is about, in one column of its table. */
const SHOWN = ['words/s', 'runs/s', 'p99 ms', 'kB a reader']

/** Bars, a group for each cell: no library, and it is read in a browser, a repository and a diff. */
export function barPicture(results: readonly CellResult[]): string {
  const parts: string[] = []
  let y = 10
  for (const { letter, title, rows } of results) {
    const column = SHOWN.find((name) => rows.some(({ values }) => Number.isFinite(values[name])))
    if (!column) continue
    const most = Math.max(...rows.map(({ values }) => values[column] ?? 0))
    y += STEP
    parts.push(text(10, y, `(${letter}) ${title}: ${column}`, 'bold'))
    for (const { system, load, values } of rows) {
      const value = values[column]
      if (value === undefined || !Number.isFinite(value)) continue
      y += STEP
      const length = Math.max(1, (value / most) * (WIDTH - LABEL - 90))
      const fill = system.startsWith('Holdfast') ? '#2563eb' : '#94a3b8'
      parts.push(text(LABEL - 8, y, `${system}, ${load}`, 'normal', 'end'))
      parts.push(
        `<rect x="${LABEL}" y="${y - BAR + 5}" width="${length.toFixed(1)}" height="${BAR}" fill="${fill}"/>`,
      )
      parts.push(text(LABEL + length + 6, y, short(value)))
    }
    y += STEP / 2
  }
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${y + 20}" font-family="sans-serif" font-size="12">`,
    '<rect width="100%" height="100%" fill="#ffffff"/>',
    ...parts,
    '</svg>\n',
  ].join('\n')
}

function text(x: number, y: number, words: string, weight = 'normal', anchor = 'start'): string {
  const safe = words.replaceAll('&', '&amp;').replaceAll('<', '&lt;')
  return `<text x="${x.toFixed(1)}" y="${y}" font-weight="${weight}" text-anchor="${anchor}">${safe}</text>`
}
