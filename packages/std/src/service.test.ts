import { expect, test } from 'vitest'
import { loop, startAll } from './service.ts'

test('a loop looks at once when woken, and one more time for wake-ups during a round', async () => {
  let rounds = 0
  const arrived: (() => void)[] = []
  const looping = loop({
    name: 'test',
    everyMs: 1_000_000,
    onError: () => undefined,
    async round() {
      rounds += 1
      arrived.shift()?.()
      if (rounds === 1) looping.wake()
    },
  })
  const second = Promise.withResolvers<void>()
  arrived.push(() => undefined, second.resolve)
  await looping.start()
  await second.promise
  const third = Promise.withResolvers<void>()
  arrived.push(third.resolve)
  looping.wake()
  await third.promise
  await looping.stop()
  expect(rounds).toBe(3)
})

test('a round that throws is reported and the loop goes on', async () => {
  const errors: string[] = []
  const recovered = Promise.withResolvers<void>()
  const looping = loop({
    name: 'test',
    everyMs: 1,
    onError: (error) => errors.push(error.message),
    async round() {
      if (errors.length < 3) throw new Error(`round ${errors.length}`)
      recovered.resolve()
    },
  })
  await looping.start()
  await recovered.promise
  await looping.stop()
  expect(errors).toEqual(['round 0', 'round 1', 'round 2'])
})

test('stop may precede start, may be repeated, and leaves nothing running', async () => {
  let running = 0
  const looping = loop({
    name: 'test',
    everyMs: 1,
    onError: () => undefined,
    async round() {
      running += 1
      await Promise.resolve()
      running -= 1
    },
  })
  await looping.stop()
  await looping.start()
  await looping.stop()
  await looping.stop()
  expect(running).toBe(0)
})

test('services end in reverse order, and a service that cannot start ends those before it', async () => {
  const told: string[] = []
  const service = (name: string, fails = false) => ({
    name,
    failed: new Promise<never>(() => undefined),
    async start() {
      told.push(`start ${name}`)
      if (fails) throw new Error(name)
    },
    async stop() {
      told.push(`stop ${name}`)
    },
  })
  const stack = new AsyncDisposableStack()
  const starting = startAll(stack, [service('a'), service('b', true), service('c')])
  await expect(starting).rejects.toThrow('b')
  await stack.disposeAsync()
  expect(told).toEqual(['start a', 'start b', 'stop b', 'stop a'])
})
