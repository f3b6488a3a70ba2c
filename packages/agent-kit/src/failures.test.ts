import { expect, expectTypeOf, test } from 'vitest'
import { Cancelled, failuresOf, on, takeApart } from './index.ts'

class RateLimited extends Error {
  readonly retryAfterMs = 100
}

const several = () =>
  new AggregateError([
    new RateLimited('slow down'),
    new AggregateError([new TypeError('bad'), new RateLimited('slower')]),
  ])

test('each handler has its share, typed, in one call; the first that matches has it', async () => {
  const shares: string[][] = []
  await takeApart(
    several(),
    on(RateLimited, (failures) => {
      expectTypeOf(failures).toEqualTypeOf<readonly RateLimited[]>()
      shares.push(failures.map(({ message }) => message))
    }),
    on(Error, (failures) => void shares.push(failures.map(({ message }) => message))),
  )
  expect(shares).toEqual([['slow down', 'slower'], ['bad']])
})

test('what nobody takes goes on up: one failure as itself, several together', async () => {
  const one = takeApart(
    several(),
    on(RateLimited, () => undefined),
  )
  await expect(one).rejects.toBeInstanceOf(TypeError)
  const both = takeApart(
    several(),
    on(TypeError, () => undefined),
  )
  await expect(both).rejects.toBeInstanceOf(AggregateError)
})

test('a guard may choose, and what a handler throws joins the rest', async () => {
  const isBad = (failure: Error): failure is TypeError => failure.message === 'bad'
  const again = takeApart(
    several(),
    on(isBad, () => {
      throw new Error('handled badly')
    }),
    on(RateLimited, () => undefined),
  )
  await expect(again).rejects.toThrow('handled badly')
})

test('a cancellation is never anybody’s share', async () => {
  const reason = new Cancelled('cancel')
  await expect(
    takeApart(
      reason,
      on(Error, () => undefined),
    ),
  ).rejects.toBe(reason)
})

test('whatever was thrown is failures', () => {
  expect(failuresOf(several()).map(({ message }) => message)).toEqual([
    'slow down',
    'bad',
    'slower',
  ])
  expect(failuresOf('text')).toEqual([new Error('text')])
})
