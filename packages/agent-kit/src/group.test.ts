import { expect, expectTypeOf, test } from 'vitest'
import { Cancelled, type Child, type Scope, withScope } from './index.ts'

/** Ends only when it is cancelled, and says by which reason. */
async function patient({ signal }: Scope, told: unknown[] = []): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>()
  signal.addEventListener('abort', () => {
    told.push(signal.reason)
    reject(signal.reason)
  })
  return promise
}

test('children are typed, and their values come when the group is left', async () => {
  const result = await withScope((scope) =>
    scope.group(async (group) => ({
      n: group.spawn(async () => 7),
      text: group.spawn(() => 'hello'),
      other: true,
    })),
  )
  expect(result).toEqual({ n: 7, text: 'hello', other: true })
  expectTypeOf(result).toEqualTypeOf<{
    readonly n: number
    readonly text: string
    readonly other: true
  }>()
  const pair = await withScope((scope) =>
    scope.group((group) => [group.spawn(() => 7), group.spawn(async () => 'hello')]),
  )
  expectTypeOf(pair).toEqualTypeOf<[number, string]>()
  expect(pair).toEqual([7, 'hello'])
  const one = await withScope((scope) => scope.group((group) => group.spawn(() => 7)))
  expectTypeOf(one).toEqualTypeOf<number>()
  expect(one).toBe(7)
})

test('a result that is no child is left as it is', async () => {
  const made = new Map([['a', 1]])
  const same = await withScope((scope) => scope.group(() => made))
  expectTypeOf(same).toEqualTypeOf<Map<string, number>>()
  expect(same).toBe(made)
})

test('a child has no value in its type, and asking for its outcome too early is an error', async () => {
  expectTypeOf<Child<number>>().not.toHaveProperty('value')
  let early: unknown
  const child = await withScope(async (scope) => {
    let kept: Child<number> | undefined
    await scope.group((group) => {
      const spawned = group.spawn(() => 7, { name: 'seven' })
      kept = spawned
      try {
        early = spawned.outcome
      } catch (error) {
        early = error
      }
    })
    return kept
  })
  expect(early).toMatchObject({ message: expect.stringContaining('seven is read before') })
  expect(child?.outcome).toEqual({ status: 'done', value: 7 })
})

test('a failing child cancels its siblings, and the group leaves only when all have settled', async () => {
  const told: unknown[] = []
  const order: string[] = []
  const failure = new Error('burnt')
  const leaving = withScope((scope) =>
    scope.group((group) => {
      group.spawn(async (inner) => {
        try {
          await patient(inner, told)
        } finally {
          await inner.shield({ ms: 500 }, ({ sleep }) => sleep(20))
          order.push('slow clean-up')
        }
      })
      group.spawn((inner) => patient(inner, told).finally(() => order.push('clean-up')))
      group.spawn(async () => {
        throw failure
      })
    }),
  ).finally(() => order.push('left'))
  await expect(leaving).rejects.toBe(failure)
  expect(order).toEqual(['clean-up', 'slow clean-up', 'left'])
  expect(told).toEqual([expect.any(Cancelled), expect.any(Cancelled)])
  expect(told[0]).toMatchObject({ reason: 'sibling_failed', cause: failure })
})

test('a group that fails in its own body cancels its children', async () => {
  const told: unknown[] = []
  const leaving = withScope((scope) =>
    scope.group((group) => {
      group.spawn((inner) => patient(inner, told))
      throw new Error('no')
    }),
  )
  await expect(leaving).rejects.toThrow('no')
  expect(told).toMatchObject([{ reason: 'sibling_failed' }])
})

test('results of children that finished before are kept', async () => {
  const children: Child<unknown>[] = []
  const finished = Promise.withResolvers<void>()
  await withScope((scope) =>
    scope.group((group) => {
      children.push(
        group.spawn(async () => {
          finished.resolve()
          return 'soup'
        }),
        group.spawn(patient),
        group.spawn(async () => {
          await finished.promise
          throw new Error('burnt')
        }),
      )
    }),
  ).catch(() => undefined)
  expect(children.map(({ outcome }) => outcome)).toEqual([
    { status: 'done', value: 'soup' },
    { status: 'cancelled', reason: expect.objectContaining({ reason: 'sibling_failed' }) },
    { status: 'failed', error: expect.objectContaining({ message: 'burnt' }) },
  ])
})

test('several failures arrive together', async () => {
  const leaving = withScope((scope) =>
    scope.group((group) => {
      group.spawn((inner) =>
        patient(inner).catch(() => {
          throw new TypeError('while cleaning up')
        }),
      )
      group.spawn(patient)
      group.spawn(() => Promise.reject(new RangeError('first')))
    }),
  )
  const error = await leaving.catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(AggregateError)
  expect((error as AggregateError).errors.map(String)).toEqual([
    'RangeError: first',
    'TypeError: while cleaning up',
  ])
})

test('children may spawn children, in their group and in groups of their own', async () => {
  const seen: number[] = []
  await withScope((scope) =>
    scope.group((group) => {
      group.spawn(async (inner) => {
        group.spawn(() => seen.push(1))
        await inner.group((own) => {
          own.spawn(async ({ sleep }) => {
            await sleep(5)
            seen.push(2)
          })
        })
      })
    }),
  )
  expect(seen).toEqual([1, 2])
})

test('nothing can be spawned in a group that has been left', async () => {
  let escaped: (() => unknown) | undefined
  await withScope((scope) =>
    scope.group((group) => {
      escaped = () => group.spawn(() => 1)
    }),
  )
  expect(escaped).toThrow('needs a scope that has not been left')
})

test('a cancel from outside reaches every child with its reason, and is thrown', async () => {
  const told: unknown[] = []
  const controller = new AbortController()
  const reason = new Cancelled('drain')
  const begun = Promise.withResolvers<void>()
  const running = withScope(
    (scope) =>
      scope.group((group) => {
        group.spawn((inner) => patient(inner, told))
        group.spawn((inner) => inner.group((own) => void own.spawn((deep) => patient(deep, told))))
        group.spawn(() => begun.resolve())
      }),
    { signal: controller.signal },
  )
  await begun.promise
  await new Promise(setImmediate)
  controller.abort(reason)
  await expect(running).rejects.toBe(reason)
  expect(told).toEqual([reason, reason])
})

test('an AbortError of a library is a cancellation once the signal has aborted, before it a failure', async () => {
  const abortError = () => new DOMException('This operation was aborted', 'AbortError')
  const before = withScope((scope) =>
    scope.group((group) => void group.spawn(() => Promise.reject(abortError()))),
  )
  await expect(before).rejects.toMatchObject({ name: 'AbortError' })
  const failure = new Error('burnt')
  const after = withScope((scope) =>
    scope.group((group) => {
      group.spawn((inner) =>
        patient(inner).catch(() => {
          throw abortError()
        }),
      )
      group.spawn(() => Promise.reject(failure))
    }),
  )
  await expect(after).rejects.toBe(failure)
})
