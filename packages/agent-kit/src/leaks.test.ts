import { getEventListeners } from 'node:events'
import { expect, test } from 'vitest'
import { Cancelled, closing, withScope } from './index.ts'

const timers = () => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length

test('10,000 scopes of every kind leave no listener and no timer behind', async () => {
  const { signal } = new AbortController()
  const before = timers()
  async function* items() {
    yield 1
  }
  for (let n = 0; n < 10_000; n += 50) {
    await withScope(
      async (scope) => {
        const work = Array.from({ length: 10 }, async (_, index) => {
          await scope.group((group) => void group.spawn(({ sleep }) => sleep(0)))
          await scope.timeout(60_000, () => 1)
          await scope.shield({ ms: 60_000 }, () => 1)
          await scope.use(Promise.resolve({ [Symbol.dispose]: () => undefined }))
          for await (const _ of closing(items(), scope.signal)) break
          const cut = scope.group((group) => {
            group.spawn(({ sleep }) => sleep(60_000))
            group.spawn(() => Promise.reject(new Error(String(index))))
          })
          await cut.catch(() => undefined)
        })
        await Promise.all(work)
        expect(getEventListeners(scope.signal, 'abort')).toEqual([])
      },
      { signal },
    )
  }
  expect(getEventListeners(signal, 'abort')).toEqual([])
  expect(timers()).toBeLessThanOrEqual(before)
})

test('a cancelled scope leaves none either', async () => {
  const controller = new AbortController()
  const before = timers()
  const running = withScope((scope) => scope.timeout(60_000, ({ sleep }) => sleep(60_000)), {
    signal: controller.signal,
  })
  await new Promise(setImmediate)
  controller.abort(new Cancelled('cancel'))
  await expect(running).rejects.toMatchObject({ reason: 'cancel' })
  expect(getEventListeners(controller.signal, 'abort')).toEqual([])
  expect(timers()).toBeLessThanOrEqual(before)
})
