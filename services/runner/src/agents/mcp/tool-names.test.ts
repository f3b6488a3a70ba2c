import { expect, test } from 'vitest'
import { offeredNames } from './tool-names.ts'

const namesOf = (...tools: [server: string, tool: string][]) => [
  ...offeredNames(tools.map(([server, tool]) => ({ server, tool, value: tool }))).keys(),
]

test('a tool is offered under its server’s name and its own', () => {
  expect(namesOf(['files', 'read'])).toEqual(['files__read'])
})

test('every offered name is one that providers take, and no two are the same', () => {
  const long = 'x'.repeat(100)
  const names = namesOf(
    ['a.b', 'read/all'],
    ['a_b', 'read_all'],
    ['a', long],
    ['a', `${long}y`],
    ['ä', 'é'],
  )
  expect(new Set(names).size).toBe(5)
  for (const name of names) expect(name).toMatch(/^[A-Za-z0-9_-]{1,64}$/)
})

test('names are the same in every attempt', () => {
  const once = () => namesOf(['a.b', 'c'], ['a_b', 'c'])
  expect(once()).toEqual(once())
})
