import { expect, test } from 'vitest'
import { absenceJudge } from './presence-watch.ts'

const LEASE_MS = 30_000
const up = { serverStartedAt: 'monday', upMs: 60_000 }
const there = { ...up, present: ['a', 'me'], absent: [] }
const away = { ...up, present: ['me'], absent: ['a'] }

function judge() {
  return absenceJudge({ bootId: 'me', leaseMs: LEASE_MS })
}

test('an owner that was there and is absent for long enough is gone, until it is forgotten', () => {
  const { look, forget } = judge()
  expect(look(there, 0)).toEqual([])
  expect(look(away, 300)).toEqual([])
  expect(look(away, 600)).toEqual([])
  expect(look(away, 1000)).toEqual(['a'])
  expect(look(away, 1300)).toEqual(['a'])
  forget('a')
  expect(look(away, 1600)).toEqual([])
  expect(look(away, 9000)).toEqual([])
})

test('one look is not enough, however late it comes', () => {
  const { look } = judge()
  look(there, 0)
  expect(look(away, 60_000)).toEqual([])
})

test('an owner whose session was cut and came back is not gone', () => {
  const { look } = judge()
  look(there, 0)
  look(away, 300)
  look(there, 600)
  expect(look(away, 1200)).toEqual([])
})

test('an owner that this process never saw present is left to its lease', () => {
  const { look } = judge()
  look(away, 0)
  expect(look(away, 5000)).toEqual([])
})

test('after a restart of the server nobody is gone who was seen before it', () => {
  const { look } = judge()
  look(there, 0)
  const restarted = { serverStartedAt: 'tuesday', upMs: 60_000, present: ['me'], absent: ['a'] }
  expect(look(restarted, 300)).toEqual([])
  expect(look(restarted, 5000)).toEqual([])
})

test('for a third of a lease after a server start only leases count', () => {
  const { look } = judge()
  const young = { serverStartedAt: 'monday', upMs: 1000, present: ['a', 'me'], absent: [] }
  look(young, 0)
  const gone = { ...young, present: ['me'], absent: ['a'] }
  look(gone, 300)
  expect(look({ ...gone, upMs: 3000 }, 2300)).toEqual([])
  expect(look({ ...gone, upMs: 10_001 }, 9300)).toEqual(['a'])
})

test('a process never judges itself', () => {
  const { look } = judge()
  look(there, 0)
  const blind = { ...up, present: ['a'], absent: ['me'] }
  look(blind, 300)
  expect(look(blind, 5000)).toEqual([])
})
