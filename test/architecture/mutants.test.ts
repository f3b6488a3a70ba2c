// Goal: the known-bad builds keep up with the code. Trying them all takes minutes; that each can be built, and names a
// test that is there, is seen at once.
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { broken, readMutants } from '../mutants/mutant.ts'
import { ROOT } from './source-files.ts'

const mutants = await readMutants([])
const read = (path: string) => readFile(join(ROOT, path), 'utf8')

test.each(mutants)('the code can be broken so that $name', async (mutant) => {
  const text = await read(mutant.file)
  expect(broken(text, mutant)).not.toBe(text)
  const tests = await read(mutant.test)
  // A name may be put together from a table, or from values.
  const literal = !/\b(?:test|describe)(?:\.each|\.for|\((?!'))/.test(tests)
  if (mutant.only && literal) expect(tests).toContain(mutant.only)
})

test('names are unique, and every invariant of the table has a break', async () => {
  expect(new Set(mutants.map(({ name }) => name)).size).toBe(mutants.length)
  const table = [...(await read('ARCHITECTURE.md')).matchAll(/^\| (I\d+) \|/gm)].map(([, id]) => id)
  expect(table).toHaveLength(20)
  const covered = new Set(mutants.map(({ invariant }) => invariant))
  expect(table.filter((id) => id && !covered.has(id))).toEqual([])
})
