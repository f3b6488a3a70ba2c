import { EventType } from '@ag-ui/core'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import type { AgUiEvent, Message } from './event.ts'
import { foldEvents } from './fold.ts'
import { clientHolds } from './testing/ag-ui-oracle.ts'
import { foldBefore, randomLog } from './testing/random-log.ts'
import { attemptEvent, withdrawalEvents } from './withdrawal.ts'

const USER: Message = { id: 'u2', role: 'user', content: 'and now?' }

function emptied(message: Message): boolean {
  if (message.role === 'reasoning') return message.content === '' && !message.encryptedValue
  return message.role === 'activity' && Object.keys(message.content).length === 0
}

test('after a withdrawal every client holds the history and state of the turn, and nothing open', async () => {
  await fc.assert(
    fc.asyncProperty(randomLog(), async (log) => {
      const fold = foldEvents(foldBefore(log), log.events)
      if (fold.terminal) return
      const history = [...log.history, USER]
      const state = log.stateBefore
      const events = withdrawalEvents({ fold, epoch: 9, reason: 'takeover', history, state })
      const before = { messages: log.history, state }
      const held = await clientHolds([...log.events, ...events], before)
      const known = new Set(history.map((message) => message.id))
      expect(held.messages.filter((message) => known.has(message.id))).toEqual(
        expect.arrayContaining(history),
      )
      const rest = held.messages.filter((message) => !known.has(message.id))
      expect(rest.filter((message) => !emptied(message))).toEqual([])
      expect(rest.filter((message) => message.metadata !== undefined)).toEqual([])
      expect(held.state).toEqual(state ?? {})
      const after = foldEvents(fold, events)
      expect(after.open).toEqual([])
      expect(after.messages).toEqual(held.messages)
    }),
    { seed: 4_242, numRuns: 200 },
  )
})

test('a withdrawal closes first, then says why, then restores state and messages', () => {
  const events: AgUiEvent[] = [
    { type: EventType.RUN_STARTED, threadId: 't', runId: 'r' },
    { type: EventType.REASONING_MESSAGE_START, messageId: 'r1', role: 'reasoning' },
    { type: EventType.REASONING_MESSAGE_CONTENT, messageId: 'r1', delta: 'hm' },
    { type: EventType.TEXT_MESSAGE_START, messageId: 'm1' },
  ]
  const fold = foldEvents(
    foldBefore({ history: [USER], stateBefore: undefined, events: [] }),
    events,
  )
  const withdrawal = { fold, epoch: 2, history: [USER], state: undefined }
  expect(withdrawalEvents({ ...withdrawal, reason: 'handback' })).toEqual([
    { type: EventType.TEXT_MESSAGE_END, messageId: 'm1' },
    { type: EventType.REASONING_MESSAGE_END, messageId: 'r1' },
    { type: EventType.CUSTOM, name: 'holdfast.attempt', value: { epoch: 2, reason: 'handback' } },
    { type: EventType.STATE_SNAPSHOT, snapshot: {} },
    {
      type: EventType.MESSAGES_SNAPSHOT,
      messages: [USER, { id: 'r1', role: 'reasoning', content: '' }],
    },
  ])
})

test('a first attempt withdraws nothing', () => {
  const fold = foldBefore({ history: [USER], stateBefore: undefined, events: [] })
  expect(
    withdrawalEvents({ fold, epoch: 1, reason: 'first', history: [USER], state: { n: 1 } }),
  ).toEqual([attemptEvent(1, 'first')])
})
