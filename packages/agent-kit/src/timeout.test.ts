import { expect, test, vi } from 'vitest'
import { Cancelled, type Child, type Deadline, DeadlineExceeded, withScope } from './index.ts'

test('a deadline of 0.4 s over children of 0.3 to 0.53 s leaves the finished ones finished', async () => {
  const cooking = [300, 320, 480, 500, 530]
  const children: Child<number>[] = []
  const serving = withScope((scope) =>
    scope.timeout(400, (inner) =>
      inner.group((group) => {
        for (const ms of cooking) {
          children.push(
            group.spawn(async ({ sleep }) => {
              await sleep(ms)
              return ms
            }),
          )
        }
      }),
    ),
  )
  await expect(serving).rejects.toBeInstanceOf(DeadlineExceeded)
  expect(children.map(({ outcome }) => outcome.status)).toEqual([
    'done',
    'done',
    'cancelled',
    'cancelled',
    'cancelled',
  ])
  expect(children[0]?.outcome).toEqual({ status: 'done', value: 300 })
  expect(children[4]?.outcome).toMatchObject({ reason: { reason: 'deadline' } })
})

test('what ends in time has its value, and no timer is left', async () => {
  expect(await withScope((scope) => scope.timeout(60_000, () => 'soon'))).toBe('soon')
  expect(process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length).toBeLessThan(
    5,
  )
})

test('nested deadlines share the earliest, and the one that passed says so', async () => {
  const told: unknown[] = []
  let leftMs = 0
  const outer = withScope((scope) =>
    scope.timeout(30, (first) =>
      first
        .timeout(60_000, async (second) => {
          leftMs = second.leftMs()
          await second.sleep(60_000)
        })
        .catch((error: unknown) => {
          told.push(error)
          throw error
        }),
    ),
  )
  await expect(outer).rejects.toBeInstanceOf(DeadlineExceeded)
  expect(leftMs).toBeLessThanOrEqual(30)
  expect(told).toEqual([expect.any(Cancelled)])
  expect(told[0]).toMatchObject({ reason: 'deadline' })
})

test('a deadline may be an instant, and one that has passed does not let its body begin', async () => {
  let ran = false
  const late = withScope((scope) =>
    scope.timeout({ at: new Date(Date.now() - 1) }, () => {
      ran = true
    }),
  )
  await expect(late).rejects.toBeInstanceOf(DeadlineExceeded)
  expect(ran).toBe(false)
  const soon = withScope((scope) =>
    scope.timeout({ at: Date.now() + 20 }, (inner) => inner.sleep(60_000)),
  )
  await expect(soon).rejects.toBeInstanceOf(DeadlineExceeded)
})

test('a deadline can be moved, later and earlier, until it has passed', async () => {
  let kept: Deadline | undefined
  const moved = withScope((scope) =>
    scope.timeout(20, async (inner, deadline) => {
      deadline.reschedule(60_000)
      expect(deadline.leftMs()).toBeGreaterThan(50_000)
      await inner.sleep(60)
      kept = deadline
      deadline.reschedule({ at: Date.now() + 10 })
      await inner.sleep(60_000)
    }),
  )
  await expect(moved).rejects.toBeInstanceOf(DeadlineExceeded)
  expect(() => kept?.reschedule(1000)).toThrow(RangeError)
})

test('a limit of more than 2^31 ms does not pass at once', async () => {
  vi.useFakeTimers()
  try {
    let isOver = false
    const waiting = withScope((scope) =>
      scope.timeout(2 ** 31 + 5000, (inner) => inner.sleep(2 ** 40)),
    ).catch((error: unknown) => {
      isOver = true
      return error
    })
    await vi.advanceTimersByTimeAsync(2 ** 31)
    expect(isOver).toBe(false)
    await vi.advanceTimersByTimeAsync(5001)
    expect(await waiting).toBeInstanceOf(DeadlineExceeded)
  } finally {
    vi.useRealTimers()
  }
})

test('an endless limit is none, and what is no time is refused', async () => {
  const forever = Number.POSITIVE_INFINITY
  expect(await withScope((scope) => scope.timeout(forever, (inner) => inner.leftMs()))).toBe(
    forever,
  )
  await expect(withScope((scope) => scope.timeout(Number.NaN, () => 1))).rejects.toThrow(RangeError)
})

test('a failure and a deadline that passed meanwhile arrive together', async () => {
  const both = withScope((scope) =>
    scope.timeout(10, (inner) =>
      inner.sleep(60_000).catch(() => {
        throw new TypeError('while cleaning up')
      }),
    ),
  )
  const error = await both.catch((thrown: unknown) => thrown)
  expect((error as AggregateError).errors.map(({ name }: Error) => name)).toEqual([
    'DeadlineExceeded',
    'TypeError',
  ])
})
