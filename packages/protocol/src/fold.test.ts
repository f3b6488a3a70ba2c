import { EventType } from '@ag-ui/core'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { closingEvents } from './closing.ts'
import type { AgUiEvent } from './event.ts'
import { emptyFold, type Fold, foldEvents, unansweredToolCalls } from './fold.ts'
import { clientHolds } from './testing/ag-ui-oracle.ts'
import { foldBefore, type RandomLog, randomLog } from './testing/random-log.ts'

const SEED = 20_251

function folded(log: RandomLog): Fold {
  return foldEvents(foldBefore(log), log.events)
}

test('a fold holds what the client of AG-UI holds, for every log that its verifier takes', async () => {
  await fc.assert(
    fc.asyncProperty(randomLog({ collides: true }), async (log) => {
      const held = await clientHolds(log.events, {
        messages: log.history,
        state: log.stateBefore,
      })
      const fold = folded(log)
      expect(fold.messages).toEqual(held.messages)
      expect('state' in fold ? fold.state : {}).toEqual(held.state)
    }),
    { seed: SEED, numRuns: 800 },
  )
})

test('folding in two parts is folding at once, and changes neither the base nor the events', () => {
  fc.assert(
    fc.property(randomLog(), fc.nat(), (log, n) => {
      const cut = n % (log.events.length + 1)
      const untouched = structuredClone(log)
      const first = foldEvents(foldBefore(log), log.events.slice(0, cut))
      const before = structuredClone(first)
      expect(foldEvents(first, log.events.slice(cut))).toEqual(folded(log))
      expect(first).toEqual(before)
      expect(log).toEqual(untouched)
    }),
    { seed: SEED, numRuns: 300 },
  )
})

test('a fold that was saved as JSON goes on as if it had not been', () => {
  fc.assert(
    fc.property(randomLog(), fc.nat(), (log, n) => {
      const cut = n % (log.events.length + 1)
      const first = foldEvents(foldBefore(log), log.events.slice(0, cut))
      const saved: Fold = JSON.parse(JSON.stringify(first))
      expect(saved).toStrictEqual(first)
      expect(foldEvents(saved, log.events.slice(cut))).toEqual(folded(log))
    }),
    { seed: SEED, numRuns: 200 },
  )
})

test('after the closing events nothing is open, no call is unanswered, and the run may finish', async () => {
  await fc.assert(
    fc.asyncProperty(randomLog(), async (log) => {
      if (folded(log).terminal) return
      let minted = 0
      const closing = { answerTools: true, mintId: () => `closing-${++minted}` }
      const closers = closingEvents(folded(log), closing)
      const closed = foldEvents(folded(log), closers)
      expect(closed.open).toEqual([])
      expect(unansweredToolCalls(closed)).toEqual([])
      const finished = { type: EventType.RUN_FINISHED as const, threadId: 't', runId: 'r' }
      const before = { messages: log.history, state: log.stateBefore }
      const held = await clientHolds([...log.events, ...closers, finished], before)
      expect(held.messages).toEqual(closed.messages)
    }),
    { seed: SEED, numRuns: 150 },
  )
})

test('a call that is expected to be answered later gets no result', () => {
  const fold = foldEvents(emptyFold(), [
    { type: EventType.TOOL_CALL_START, toolCallId: 'c1', toolCallName: 'ask' },
    { type: EventType.TOOL_CALL_START, toolCallId: 'c2', toolCallName: 'look' },
  ])
  const events = closingEvents(fold, {
    answerTools: true,
    mintId: () => 'm',
    pending: new Set(['c1']),
  })
  expect(events).toEqual([
    { type: EventType.TOOL_CALL_END, toolCallId: 'c2' },
    { type: EventType.TOOL_CALL_END, toolCallId: 'c1' },
    {
      type: EventType.TOOL_CALL_RESULT,
      messageId: 'm',
      toolCallId: 'c2',
      content: 'interrupted',
      role: 'tool',
    },
  ])
})

test('a patch that does not fit leaves the state as it was, also if its first half fitted', () => {
  const fold = foldEvents(emptyFold(), [
    { type: EventType.STATE_SNAPSHOT, snapshot: { n: 1 } },
    {
      type: EventType.STATE_DELTA,
      delta: [
        { op: 'replace', path: '/n', value: 2 },
        { op: 'remove', path: '/missing' },
      ],
    },
  ])
  expect(fold.state).toEqual({ n: 1 })
})

test('a patch whose later operation changes an earlier value leaves the event as it was', () => {
  const delta: AgUiEvent = {
    type: EventType.STATE_DELTA,
    delta: [
      { op: 'add', path: '/n', value: {} },
      { op: 'add', path: '/n/deep', value: 1 },
    ],
  }
  const before = structuredClone(delta)
  expect(foldEvents(emptyFold(), [delta]).state).toEqual({ n: { deep: 1 } })
  expect(delta).toEqual(before)
})

test('a run that starts behind one that failed is not ended, and has nothing open', () => {
  const run = { threadId: 't', runId: 'r' }
  const failed = foldEvents(emptyFold(), [
    { type: EventType.RUN_STARTED, ...run },
    { type: EventType.STEP_STARTED, stepName: 'plan' },
    { type: EventType.RUN_ERROR, message: 'no' },
  ])
  expect(failed.terminal).toEqual({ type: EventType.RUN_ERROR, message: 'no' })
  const next = foldEvents(failed, [{ type: EventType.RUN_STARTED, ...run }])
  expect(next).toEqual(emptyFold())
})

test('a long text costs its length: 200,000 deltas in one message fold within two seconds', () => {
  const messages = Array.from({ length: 2000 }, (_, index) => ({
    id: `old-${index}`,
    role: 'user' as const,
    content: 'hello',
  }))
  const start = { type: EventType.TEXT_MESSAGE_START as const, messageId: 'm' }
  const delta = { type: EventType.TEXT_MESSAGE_CONTENT as const, messageId: 'm', delta: 'word ' }
  const events = [start, ...Array.from({ length: 200_000 }, () => delta)]
  const startedMs = performance.now()
  const fold = foldEvents({ ...emptyFold(), messages }, events)
  expect(performance.now() - startedMs).toBeLessThan(2000)
  expect(fold.messages.at(-1)?.content).toHaveLength(1_000_000)
})

test('a delta of one call does not cost the calls beside it', () => {
  const calls = Array.from({ length: 2000 }, (_, index) => ({
    type: EventType.TOOL_CALL_START as const,
    toolCallId: `c-${index}`,
    toolCallName: 'look',
    parentMessageId: 'm',
  }))
  const delta = { type: EventType.TOOL_CALL_ARGS as const, toolCallId: 'c-0', delta: 'x' }
  const events = [...calls, ...Array.from({ length: 50_000 }, () => delta)]
  const startedMs = performance.now()
  const [message] = foldEvents(emptyFold(), events).messages
  expect(performance.now() - startedMs).toBeLessThan(2000)
  expect(message?.role === 'assistant' && message.toolCalls?.[0]?.function.arguments).toHaveLength(
    50_000,
  )
})
