import { EventType } from '@ag-ui/core'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import type { AgUiEvent } from './event.ts'
import { foldEvents } from './fold.ts'
import { preludeEvents } from './prelude.ts'
import { clientHolds } from './testing/ag-ui-oracle.ts'
import { foldBefore, type RandomLog, randomLog } from './testing/random-log.ts'

const INPUT = {
  threadId: 't',
  runId: 'r',
  messages: [{ id: 'u2', role: 'user' as const, content: 'and now?' }],
  tools: [],
  context: [],
}

function preludeAt(log: RandomLog, cut: number): AgUiEvent[] {
  const fold = foldEvents(foldBefore(log), log.events.slice(0, cut))
  const { messages, state, open, terminal } = fold
  return preludeEvents({ threadId: 't', runId: 'r', input: INPUT, messages, state, open, terminal })
}

test('a prelude and what follows it pass the verifier and end where the whole log ends', async () => {
  await fc.assert(
    fc.asyncProperty(randomLog({ movesMax: 40 }), async (log) => {
      const whole = foldEvents(foldBefore(log), log.events)
      for (let cut = 1; cut <= log.events.length; cut += 1) {
        const seen = [...preludeAt(log, cut), ...log.events.slice(cut)]
        const held = await clientHolds(seen)
        expect(held.messages).toEqual(whole.messages)
        expect(held.state).toEqual('state' in whole ? whole.state : {})
        expect(foldEvents({ messages: [], open: [], terminal: null }, seen).open).toEqual(
          whole.open.map((one) => expect.objectContaining({ kind: one.kind, id: one.id })),
        )
      }
    }),
    { seed: 7_311, numRuns: 150 },
  )
})

test('a text, its reasoning, a call, a step and a subagent go on in the middle, without doubling', async () => {
  const owner = { subagentRunId: 's' }
  const begun: AgUiEvent[] = [
    { type: EventType.RUN_STARTED, threadId: 't', runId: 'r' },
    { type: EventType.SUBAGENT_STARTED, ...owner, name: 'helper' },
    { type: EventType.STEP_STARTED, stepName: 'plan', ...owner },
    { type: EventType.REASONING_START, messageId: 'r1', ...owner },
    { type: EventType.REASONING_MESSAGE_START, messageId: 'r1', role: 'reasoning', ...owner },
    { type: EventType.REASONING_MESSAGE_CONTENT, messageId: 'r1', delta: 'hm' },
    { type: EventType.TEXT_MESSAGE_START, messageId: 'm1', metadata: { n: 1 }, ...owner },
    { type: EventType.TEXT_MESSAGE_CONTENT, messageId: 'm1', delta: 'hel', metadata: { n: 2 } },
    { type: EventType.TOOL_CALL_START, toolCallId: 'c1', toolCallName: 'f', parentMessageId: 'm1' },
    { type: EventType.TOOL_CALL_ARGS, toolCallId: 'c1', delta: '{"a":' },
  ]
  const rest: AgUiEvent[] = [
    { type: EventType.TOOL_CALL_ARGS, toolCallId: 'c1', delta: '1}' },
    { type: EventType.TEXT_MESSAGE_CONTENT, messageId: 'm1', delta: 'lo', ...owner },
    { type: EventType.REASONING_MESSAGE_CONTENT, messageId: 'r1', delta: 'm' },
    { type: EventType.TOOL_CALL_END, toolCallId: 'c1' },
    { type: EventType.TEXT_MESSAGE_END, messageId: 'm1' },
    { type: EventType.REASONING_MESSAGE_END, messageId: 'r1' },
    { type: EventType.REASONING_END, messageId: 'r1' },
    { type: EventType.STEP_FINISHED, stepName: 'plan', ...owner },
    { type: EventType.SUBAGENT_FINISHED, ...owner },
    { type: EventType.RUN_FINISHED, threadId: 't', runId: 'r' },
  ]
  const log = { history: [], stateBefore: undefined, events: begun }
  const held = await clientHolds([...preludeAt(log, begun.length), ...rest])
  expect(held.messages).toEqual([
    { id: 'r1', role: 'reasoning', content: 'hmm', subagentRunId: 's' },
    {
      id: 'm1',
      role: 'assistant',
      content: 'hello',
      subagentRunId: 's',
      metadata: { n: 2 },
      toolCalls: [{ id: 'c1', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }],
    },
  ])
})

test('a prelude keeps the order of the turns although its run began with a message', async () => {
  const history = [
    { id: 'u1', role: 'user' as const, content: 'hello' },
    { id: 'a1', role: 'assistant' as const, content: 'hi' },
  ]
  const started: AgUiEvent = {
    type: EventType.RUN_STARTED,
    threadId: 't',
    runId: 'r',
    input: INPUT,
  }
  const held = await clientHolds(preludeAt({ history, stateBefore: {}, events: [started] }, 1))
  expect(held.messages.map((message) => message.id)).toEqual(['u1', 'a1', 'u2'])
})

test('a subagent whose parent has ended is opened again without naming it', async () => {
  const begun: AgUiEvent[] = [
    { type: EventType.RUN_STARTED, threadId: 't', runId: 'r' },
    { type: EventType.SUBAGENT_STARTED, subagentRunId: 's1', name: 'a' },
    { type: EventType.SUBAGENT_STARTED, subagentRunId: 's2', name: 'b', parentSubagentRunId: 's1' },
    { type: EventType.SUBAGENT_FINISHED, subagentRunId: 's1' },
  ]
  const log = { history: [], stateBefore: undefined, events: begun }
  const prelude = preludeAt(log, begun.length)
  await clientHolds(prelude)
  expect(prelude.at(-1)).toEqual({
    type: EventType.SUBAGENT_STARTED,
    subagentRunId: 's2',
    name: 'b',
  })
})

test('a call whose parent is no assistant is opened again where it really stands', async () => {
  const begun: AgUiEvent[] = [
    { type: EventType.RUN_STARTED, threadId: 't', runId: 'r' },
    {
      type: EventType.TOOL_CALL_RESULT,
      messageId: 'm1',
      toolCallId: 'c1',
      content: 'one',
      subagentRunId: 's',
    },
    { type: EventType.TOOL_CALL_START, toolCallId: 'c2', toolCallName: 'f', parentMessageId: 'm1' },
  ]
  const prelude = preludeAt({ history: [], stateBefore: undefined, events: begun }, begun.length)
  await clientHolds(prelude)
  expect(prelude.at(-1)).toMatchObject({ toolCallId: 'c2', parentMessageId: 'c2' })
})

test('the prelude of an ended run ends with its terminal event', () => {
  const terminal: AgUiEvent = { type: EventType.RUN_ERROR, message: 'no', code: 'stalled' }
  const prelude = preludeEvents({
    threadId: 't',
    runId: 'r',
    messages: [],
    state: undefined,
    open: [],
    terminal,
  })
  expect(prelude.map((event) => event.type)).toEqual([
    EventType.RUN_STARTED,
    EventType.MESSAGES_SNAPSHOT,
    EventType.RUN_ERROR,
  ])
})
