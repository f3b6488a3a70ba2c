import { getEventListeners } from 'node:events'
import { PassThrough } from 'node:stream'
import { expect, test } from 'vitest'
import { Cancelled, closing, type Report } from './index.ts'

/** A generator that says when it was closed, and listens to the signal if it is given one. */
async function* numbers(told: string[], signal?: AbortSignal) {
  try {
    yield 1
    yield 2
    await new Promise((_, reject) => signal?.addEventListener('abort', () => reject(signal.reason)))
  } finally {
    told.push('closed')
  }
}

async function read<T>(stream: AsyncIterable<T>, onItem: (item: T) => unknown): Promise<void> {
  for await (const item of stream) if (onItem(item) === 'leave') break
}

test('the source is closed before the loop is left: by break, by an error, at its end', async () => {
  const { signal } = new AbortController()
  const told: string[] = []
  await read(closing(numbers(told), signal), () => 'leave')
  expect(told).toEqual(['closed'])
  const failing = read(closing(numbers(told), signal), () => {
    throw new Error('no')
  })
  await expect(failing).rejects.toThrow('no')
  expect(told).toEqual(['closed', 'closed'])
  const seen: number[] = []
  await read(closing(new Blob(['ab']).stream(), signal), (bytes) => seen.push(bytes.length))
  expect(seen).toEqual([2])
  expect(getEventListeners(signal, 'abort')).toEqual([])
})

test('an abort closes the source while a read is pending, and throws the reason', async () => {
  const reason = new Cancelled('cancel')
  const told: string[] = []
  const controller = new AbortController()
  const reading = read(
    closing((signal) => numbers(told, signal), controller.signal),
    (n) => n === 2 && setImmediate(() => controller.abort(reason)),
  )
  await expect(reading).rejects.toBe(reason)
  expect(told).toEqual(['closed'])
  expect(getEventListeners(controller.signal, 'abort')).toEqual([])
})

test('streams of Node, of the web and of SDKs are closed under a pending read', async () => {
  const closed: string[] = []
  const node = new PassThrough({ objectMode: true })
  node.once('close', () => closed.push('node'))
  const web = new ReadableStream({ cancel: () => void closed.push('web') })
  const inner = new AbortController()
  inner.signal.addEventListener('abort', () => closed.push('sdk'))
  const sdk = { controller: inner, [Symbol.asyncIterator]: () => numbers([], inner.signal) }
  for (const source of [node, web, sdk] as AsyncIterable<unknown>[]) {
    const controller = new AbortController()
    const reading = read(closing(source, controller.signal), () => undefined)
    setImmediate(() => controller.abort(new Cancelled('deadline')))
    await expect(reading).rejects.toMatchObject({ reason: 'deadline' })
  }
  expect(closed).toEqual(['node', 'web', 'sdk'])
})

test('a source that does not close is left behind within a bound, and reported', async () => {
  const reports: Report[] = []
  const controller = new AbortController()
  const reading = read(
    closing(numbers([]), controller.signal, {
      closeMs: 20,
      onReport: (report) => reports.push(report),
    }),
    (n) => n === 2 && setImmediate(() => controller.abort(new Cancelled('cancel'))),
  )
  await expect(reading).rejects.toMatchObject({ reason: 'cancel' })
  expect(reports).toEqual([{ kind: 'dispose_stuck', scope: 'stream', ms: 20 }])
})

test('a pending read does not delay whoever closes the loop from outside', async () => {
  const told: string[] = []
  const stream = closing((signal) => numbers(told, signal), new AbortController().signal)
  await stream.next()
  await stream.next()
  const pending = stream.next()
  await stream[Symbol.asyncDispose]()
  expect(told).toEqual(['closed'])
  expect(await pending).toEqual({ done: true, value: undefined })
  expect(await stream.next()).toEqual({ done: true, value: undefined })
})

test('a stream that was never read is closed as well, and one whose signal has aborted is not opened', async () => {
  const source = new PassThrough({ objectMode: true })
  await closing(source, new AbortController().signal)[Symbol.asyncDispose]()
  expect(source.destroyed).toBe(true)
  let opened = false
  const never = closing(
    () => {
      opened = true
      return numbers([])
    },
    AbortSignal.abort(new Cancelled('drain')),
  )
  await expect(never.next()).rejects.toMatchObject({ reason: 'drain' })
  expect(opened).toBe(false)
})

test('a source that fails keeps its error', async () => {
  async function* failing() {
    yield 1
    throw new TypeError('bad chunk')
  }
  const reading = read(closing(failing(), new AbortController().signal), () => undefined)
  await expect(reading).rejects.toThrow('bad chunk')
})
