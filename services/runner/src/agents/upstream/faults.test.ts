import { existsSync, readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { CORPUS, readCases } from '../testing/upstream-cases.ts'

const table = readFileSync(new URL('FAULTS.md', CORPUS), 'utf8')
const rows = table
  .split('\n')
  .filter((line) => line.startsWith('| ') && !line.startsWith('| fault |'))
  .map((line) => line.slice(2, -2).split(' | '))

const byProtocol = rows.filter((cells) => cells.length === 3)
const elsewhere = rows.filter((cells) => cells.length === 2)

test.each([
  ['ag-ui', './', 1],
  ['openai', 'openai/', 2],
])('every fault has a case of %s, and every case a fault', (_type, folder, column) => {
  const named = byProtocol
    .map((cells) => cells[column] ?? '')
    .filter((cell) => !/^\(.+\)$/.test(cell))
  expect(named.filter((cell) => cell.trim() === '')).toEqual([])
  const cases = readCases(folder).map(({ name }) => name)
  expect([...new Set(named.flatMap((cell) => cell.split(' ')))].sort()).toEqual(cases.sort())
})

test('faults that no body shows have their tests', () => {
  expect(rows).toHaveLength(byProtocol.length + elsewhere.length)
  expect(elsewhere.length).toBeGreaterThan(0)
  for (const [fault, path = ''] of elsewhere) {
    const file = new URL(`../../../${path.replaceAll('`', '')}`, CORPUS)
    expect(existsSync(file), fault).toBe(true)
  }
})
