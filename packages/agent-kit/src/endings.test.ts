// What a scope's end means to those who do not do as they are told: who swallow, hang, or forget to wait.
import { setTimeout as deaf } from 'node:timers/promises'
import { expect, test } from 'vitest'
import { Cancelled, DeadlineExceeded, type Report, withScope } from './index.ts'

function listening(stopMs = 2000) {
  const reports: Report[] = []
  return {
    reports,
    options: { stopMs, disposeMs: 30, onReport: (report: Report) => void reports.push(report) },
  }
}

test('a cancellation that is swallowed is detected, reported, and does not become a success', async () => {
  const { reports, options } = listening()
  const swallowing = withScope(
    (scope) =>
      scope.timeout(10, async (inner) => {
        await inner.sleep(60_000).catch(() => undefined)
        await deaf(60)
        return 'as if nothing had been'
      }),
    options,
  )
  await expect(swallowing).rejects.toBeInstanceOf(DeadlineExceeded)
  expect(reports).toEqual([{ kind: 'swallowed', scope: 'scope > timeout', ms: expect.any(Number) }])
  expect(reports[0]?.ms).toBeGreaterThan(40)
})

test('a swallowed cancel from outside is thrown all the same', async () => {
  const controller = new AbortController()
  const reason = new Cancelled('drain')
  const swallowing = withScope(
    async ({ sleep }) => {
      await sleep(60_000).catch(() => undefined)
      return 'as if nothing had been'
    },
    { signal: controller.signal },
  )
  await new Promise(setImmediate)
  controller.abort(reason)
  await expect(swallowing).rejects.toBe(reason)
})

test('code that does not stop is waited for within a bound, reported and left behind', async () => {
  const { reports, options } = listening(30)
  const released = Promise.withResolvers<void>()
  let later: unknown
  const stubborn = withScope(
    (scope) =>
      scope.timeout(10, (inner) =>
        inner.group((group) => {
          group.spawn(
            async (own) => {
              await released.promise
              later = await own.group(() => 1).catch((error: unknown) => error)
            },
            { name: 'stubborn' },
          )
          group.spawn(({ sleep }) => sleep(60_000))
        }),
      ),
    options,
  )
  await expect(stubborn).rejects.toBeInstanceOf(DeadlineExceeded)
  expect(reports.map(({ kind, scope }) => [kind, scope])).toEqual([
    ['stuck', 'scope > timeout > group > stubborn'],
  ])
  released.resolve()
  await new Promise(setImmediate)
  expect(later).toMatchObject({ message: expect.stringContaining('has not been left') })
})

test('code that tries again and again after a cancel is stuck all the same', async () => {
  const { reports, options } = listening(40)
  let tries = 0
  const stubborn = withScope(
    (scope) =>
      scope.timeout(5, async (inner) => {
        await inner.sleep(60_000).catch(() => undefined)
        while (tries < 200) {
          await inner.part('try', () => undefined).catch(() => deaf(5))
          tries += 1
        }
      }),
    options,
  )
  await expect(stubborn).rejects.toBeInstanceOf(DeadlineExceeded)
  expect(reports.map(({ kind }) => kind)).toEqual(['stuck'])
  expect(tries).toBeLessThan(100)
  tries = 200
})

test('a shield finishes a record though the scope is cancelled, also when nobody waits for it', async () => {
  const controller = new AbortController()
  const recorded: string[] = []
  const running = withScope(
    async (scope) => {
      const recording = scope.shield({ ms: 1000 }, async ({ sleep }) => {
        await sleep(30)
        recorded.push('receipt')
      })
      // Whoever waits gives up; the scope keeps hold of it.
      await Promise.race([recording, scope.sleep(60_000)])
    },
    { signal: controller.signal },
  ).finally(() => recorded.push('left'))
  await new Promise(setImmediate)
  controller.abort(new Cancelled('cancel'))
  await expect(running).rejects.toMatchObject({ reason: 'cancel' })
  expect(recorded).toEqual(['receipt', 'left'])
})

test('a shield is bounded', async () => {
  const endless = withScope((scope) => scope.shield({ ms: 10 }, ({ sleep }) => sleep(60_000)))
  await expect(endless).rejects.toBeInstanceOf(DeadlineExceeded)
  for (const ms of [0, -1, 60_001, Number.NaN]) {
    await expect(withScope((scope) => scope.shield({ ms }, () => 1))).rejects.toThrow(RangeError)
  }
})

test('a shield can begin in a scope that is cancelled already; nothing else can', async () => {
  const told: unknown[] = []
  await withScope((scope) =>
    scope.timeout(5, async (inner) => {
      try {
        await inner.sleep(60_000)
      } finally {
        told.push(await inner.shield({ ms: 500 }, () => 'recorded'))
        told.push(await inner.group(() => 'not begun').catch((error: unknown) => error))
      }
    }),
  ).catch(() => undefined)
  expect(told).toEqual(['recorded', expect.objectContaining({ reason: 'deadline' })])
})

test('what nobody waits for is cancelled when its scope ends, waited for, and its failure counts', async () => {
  const { reports, options } = listening()
  const order: string[] = []
  const forgetful = withScope(async (scope) => {
    const forgotten = scope.group((group) => {
      group.spawn(async ({ sleep }) => {
        await sleep(60_000).catch(() => order.push('stopped'))
        throw new Error('while cleaning up')
      })
    })
    await Promise.race([forgotten, deaf(10)])
    return 'forgot it'
  }, options).finally(() => order.push('left'))
  await expect(forgetful).rejects.toThrow('while cleaning up')
  expect(order).toEqual(['stopped', 'left'])
  expect(reports).toEqual([{ kind: 'not_awaited', scope: 'scope > group', ms: 0 }])
})

test('resources are disposed of in reverse order before the scope is left, also on abort', async () => {
  const order: string[] = []
  const resource = (name: string) => ({
    async [Symbol.asyncDispose]() {
      await deaf(5)
      order.push(name)
    },
  })
  const cut = withScope((scope) =>
    scope.timeout(20, async (inner) => {
      await inner.use(resource('first'))
      await inner.use({ [Symbol.dispose]: () => void order.push('second') })
      await inner.use(Promise.resolve(resource('third')))
      await inner.sleep(60_000).finally(() => order.push('body'))
    }),
  ).finally(() => order.push('left'))
  await expect(cut).rejects.toBeInstanceOf(DeadlineExceeded)
  expect(order).toEqual(['body', 'third', 'second', 'first', 'left'])
})

test('a resource that is still being opened when its scope is cancelled is disposed of when it comes', async () => {
  const disposed = Promise.withResolvers<string>()
  const opened = Promise.withResolvers<AsyncDisposable>()
  const cut = withScope((scope) =>
    scope.timeout(5, (inner) => inner.use(opened.promise)).finally(() => undefined),
  )
  await deaf(15)
  opened.resolve({ [Symbol.asyncDispose]: async () => disposed.resolve('disposed of') })
  await expect(cut).rejects.toBeInstanceOf(DeadlineExceeded)
  expect(await disposed.promise).toBe('disposed of')
})

test('a disposal that hangs is bounded and reported, one that fails is a failure, and the others happen', async () => {
  const { reports, options } = listening()
  const order: string[] = []
  const ending = withScope(async (scope) => {
    await scope.use({ [Symbol.dispose]: () => void order.push('first') })
    await scope.use({ [Symbol.asyncDispose]: () => new Promise<void>(() => undefined) })
    await scope.use({
      [Symbol.dispose]() {
        throw new Error('cannot close')
      },
    })
    throw new Error('the body')
  }, options)
  const error = await ending.catch((thrown: unknown) => thrown)
  expect((error as AggregateError).errors.map(({ message }: Error) => message)).toEqual([
    'the body',
    'cannot close',
  ])
  expect(order).toEqual(['first'])
  expect(reports.map(({ kind }) => kind)).toEqual(['dispose_stuck'])
})
