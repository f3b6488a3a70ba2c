import { expect, test } from 'vitest'
import { gate } from './gate.ts'

test('at most as many works as it is wide run at a time, the rest in order', async () => {
  const pass = gate(2)
  const started: number[] = []
  const works = Array.from({ length: 4 }, () => Promise.withResolvers<void>())
  const all = works.map((work, index) =>
    pass(async () => {
      started.push(index)
      await work.promise
      return index
    }),
  )
  await Promise.resolve()
  expect(started).toEqual([0, 1])
  works[1]?.resolve()
  await all[1]
  await Promise.resolve()
  expect(started).toEqual([0, 1, 2])
  for (const work of works) work.resolve()
  expect(await Promise.all(all)).toEqual([0, 1, 2, 3])
})

test('a work that fails gives its place back', async () => {
  const pass = gate(1)
  await expect(pass(() => Promise.reject(new Error('no')))).rejects.toThrow('no')
  expect(await pass(async () => 'next')).toBe('next')
})
