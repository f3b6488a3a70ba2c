import type { Lease } from '@holdfast/store'
import { expect, test } from 'vitest'
import { advance, closeQueue, openQueue, runLog, takeBatch } from './append-queue.ts'

const said = (delta: string) => ({ type: 'TEXT_MESSAGE_CONTENT', messageId: 'm', delta }) as never

function open() {
  const committed: number[] = []
  const queue = openQueue({ runId: 'r', epoch: 1 } as Lease, 7, {
    committed: (_events, sequence) => committed.push(sequence),
    cancelRequested: () => undefined,
    lost: () => undefined,
    poisoned: () => undefined,
  })
  const dirty = new Set<typeof queue>()
  return { queue, dirty, committed, log: runLog(queue, () => dirty.add(queue)) }
}

test('a log that was closed with events on their way has not settled', async () => {
  const { queue, dirty, log } = open()
  await log.append([said('half a sentence')])
  const [part] = takeBatch(dirty)
  const settled = log.settled()
  closeQueue(queue, new Error('not ours any more'))
  await expect(settled).rejects.toThrow('not ours any more')
  await expect(log.settled()).rejects.toThrow('not ours any more')
  expect(part?.append).toMatchObject({ base: 7, events: [{ type: 'TEXT_MESSAGE_CONTENT' }] })
})

test('what became durable settles, at the length that the log then has', async () => {
  const { dirty, committed, log } = open()
  await log.append([said('a'), said('b')])
  const settled = log.settled()
  for (const part of takeBatch(dirty)) advance(part)
  await settled
  // Two deltas of one message go as one.
  expect([log.sequence, committed]).toEqual([8, [8]])
})

test('a handler that outruns the database waits for room', async () => {
  const { dirty, log } = open()
  let over = false
  const appending = log.append([said('x'.repeat(2 << 20))]).then(() => {
    over = true
  })
  await Promise.resolve()
  expect(over).toBe(false)
  for (const part of takeBatch(dirty)) advance(part)
  await appending
})
