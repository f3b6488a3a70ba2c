import { expect, test } from 'vitest'
import { AgentFailure } from '../agent.ts'
import {
  args,
  call,
  callEnd,
  end,
  eventsOf,
  finished,
  HISTORY,
  normalise,
  normaliser,
  result,
  start,
  text,
} from './testing/normalise.ts'

test('an orderly stream passes as it is, without the upstream’s own RUN_STARTED and RAW', () => {
  const stream = [start('a'), text('a', 'Hi'), end('a')]
  const raw = { type: 'RAW', event: { provider: 'secret' } }
  const started = { type: 'RUN_STARTED', threadId: 't', runId: 'r' }
  expect(eventsOf([started, ...stream, raw, finished])).toEqual(stream)
})

test('nulls in place of absent fields, rawEvent and unknown fields are dropped, at any depth', () => {
  const events = eventsOf([
    start('a', { name: null, rawEvent: { key: 'k' }, invented: 1, timestamp: null }),
    text('a', 'x', { rawEvent: null, timestamp: 1.5, metadata: { kept: null } }),
    { type: 'MESSAGES_SNAPSHOT', messages: [{ id: 'b', role: 'assistant', content: 'y', odd: 1 }] },
    { type: 'STATE_SNAPSHOT', snapshot: { stays: null } },
  ])
  expect(events).toEqual([
    start('a'),
    text('a', 'x', { metadata: { kept: null } }),
    {
      type: 'MESSAGES_SNAPSHOT',
      messages: [
        { id: 'a', role: 'assistant', content: 'x', metadata: { kept: null } },
        { id: 'b', role: 'assistant', content: 'y' },
      ],
    },
    { type: 'STATE_SNAPSHOT', snapshot: { stays: null } },
  ])
})

test('unknown types are dropped, malformed known ones and things that are no events are errors', () => {
  expect(eventsOf([{ type: 'ping' }, { type: 'FROM_THE_FUTURE', x: 1 }])).toEqual([])
  for (const value of [
    { type: 'TEXT_MESSAGE_CONTENT', messageId: 'a' },
    { type: 'STATE_DELTA', delta: [{ op: 'replace', path: 'no-slash', value: 1 }] },
    { error: { message: 'queue full' } },
    'text',
    null,
    [start('a')],
  ]) {
    expect(() => eventsOf([value]), JSON.stringify(value)).toThrow(AgentFailure)
  }
})

test('chunks become START, CONTENT and END, closed when another construct or the end comes', () => {
  const chunk = (fields: object) => ({ type: 'TEXT_MESSAGE_CHUNK', ...fields })
  const tool = (fields: object) => ({ type: 'TOOL_CALL_CHUNK', ...fields })
  const events = eventsOf([
    chunk({ messageId: 'a', role: 'assistant', delta: 'He' }),
    { type: 'STATE_SNAPSHOT', snapshot: 1 },
    chunk({ delta: 'llo' }),
    tool({ toolCallId: 't', toolCallName: 'look', parentMessageId: 'a', delta: '{' }),
    tool({ delta: '}' }),
    chunk({ messageId: 'b', delta: 'Bye' }),
    finished,
  ])
  expect(events).toEqual([
    start('a'),
    text('a', 'He'),
    { type: 'STATE_SNAPSHOT', snapshot: 1 },
    text('a', 'llo'),
    end('a'),
    call('t', { parentMessageId: 'a' }),
    args('t', '{'),
    args('t', '}'),
    callEnd('t'),
    start('b'),
    text('b', 'Bye'),
    end('b'),
  ])
})

test('two subagents that stream chunks at once do not end each other', () => {
  const chunk = (subagentRunId: string, fields: object) => ({
    type: 'TEXT_MESSAGE_CHUNK',
    subagentRunId,
    ...fields,
  })
  const events = eventsOf([
    chunk('s1', { messageId: 'a', delta: '1' }),
    chunk('s2', { messageId: 'b', delta: '2' }),
    chunk('s1', { delta: '1' }),
    finished,
  ])
  expect(events.map((event) => event.type)).toEqual([
    'TEXT_MESSAGE_START',
    'TEXT_MESSAGE_CONTENT',
    'TEXT_MESSAGE_START',
    'TEXT_MESSAGE_CONTENT',
    'TEXT_MESSAGE_CONTENT',
    'TEXT_MESSAGE_END',
    'TEXT_MESSAGE_END',
  ])
  expect(events[4]).toEqual(text('a', '1'))
})

test('legacy THINKING events become REASONING events with ids', () => {
  const events = eventsOf([
    { type: 'THINKING_START', title: 'Hm' },
    { type: 'THINKING_TEXT_MESSAGE_START' },
    { type: 'THINKING_TEXT_MESSAGE_CONTENT', delta: 'so' },
    { type: 'THINKING_TEXT_MESSAGE_END' },
    { type: 'THINKING_END' },
  ])
  const messageId = 'run.1.thinking.message1'
  expect(events).toEqual([
    { type: 'REASONING_START', messageId: 'run.1.thinking.span1' },
    { type: 'REASONING_MESSAGE_START', messageId, role: 'reasoning' },
    { type: 'REASONING_MESSAGE_CONTENT', messageId, delta: 'so' },
    { type: 'REASONING_MESSAGE_END', messageId },
    { type: 'REASONING_END', messageId: 'run.1.thinking.span1' },
  ])
})

test('ids that the conversation has already are replaced, in every place that refers to them', () => {
  const events = eventsOf(
    [
      start('m1'),
      text('m1', 'x'),
      end('m1'),
      call('t1', { parentMessageId: 'm1' }),
      args('t1', '{}'),
      callEnd('t1'),
      result('t1', 'r1'),
      {
        type: 'REASONING_ENCRYPTED_VALUE',
        subtype: 'tool-call',
        entityId: 't1',
        encryptedValue: 'e',
      },
    ],
    { history: HISTORY, usedIds: ['t1', 'r1'] },
  )
  expect(events).toEqual([
    start('run.1.m1'),
    text('run.1.m1', 'x'),
    end('run.1.m1'),
    call('run.1.m2', { parentMessageId: 'run.1.m1' }),
    args('run.1.m2', '{}'),
    callEnd('run.1.m2'),
    result('run.1.m2', 'run.1.m3'),
    {
      type: 'REASONING_ENCRYPTED_VALUE',
      subtype: 'tool-call',
      entityId: 'run.1.m2',
      encryptedValue: 'e',
    },
  ])
})

test('an activity and a text under one id are told apart, and deltas follow theirs', () => {
  const activity = { messageId: 'x', activityType: 'plan' }
  const events = eventsOf([
    { type: 'ACTIVITY_SNAPSHOT', ...activity, content: { n: 0 } },
    start('x'),
    text('x', 'hi'),
    { type: 'ACTIVITY_DELTA', ...activity, patch: [{ op: 'replace', path: '/n', value: 1 }] },
    { type: 'ACTIVITY_DELTA', messageId: 'other', activityType: 'plan', patch: [] },
  ])
  expect(events.map((event) => 'messageId' in event && event.messageId)).toEqual([
    'x',
    'run.1.m1',
    'run.1.m1',
    'x',
  ])
})

test('a START after the END of its id is a new message', () => {
  const events = eventsOf([start('a'), text('a', '1'), end('a'), start('a'), text('a', '2')])
  expect(events.slice(3)).toEqual([start('run.1.m1'), text('run.1.m1', '2')])
})

test('what is missing and certain is added', () => {
  expect(eventsOf([text('a', 'x'), finished])).toEqual([start('a'), text('a', 'x'), end('a')])
  const repeated = eventsOf([
    start('a'),
    start('a'),
    text('a', 'x'),
    start('a'),
    end('a'),
    end('a'),
  ])
  expect(repeated).toEqual([
    start('a'),
    text('a', 'x'),
    end('a'),
    start('run.1.m1'),
    end('run.1.m1'),
  ])
  expect(eventsOf([call('t'), args('t', '{}'), result('t', 'r'), result('t', 'r2')])).toEqual([
    call('t'),
    args('t', '{}'),
    callEnd('t'),
    result('t', 'r'),
  ])
})

test('arguments of a call that nobody started are an error', () => {
  expect(() => eventsOf([args('t', '{}')])).toThrow(AgentFailure)
  expect(() => eventsOf([call('t'), callEnd('t'), args('t', '{}')])).toThrow(AgentFailure)
})

test('everything that is open is closed before the end, and nothing counts after it', () => {
  const { events, ending } = normalise([
    { type: 'SUBAGENT_STARTED', subagentRunId: 's', name: 'helper' },
    { type: 'STEP_STARTED', stepName: 'plan' },
    { type: 'REASONING_START', messageId: 'r' },
    { type: 'REASONING_MESSAGE_START', messageId: 'r', role: 'reasoning' },
    call('t'),
    start('a'),
    { ...finished, result: { n: 1 }, usage: [{ inputTokens: 1 }] },
    text('a', 'late'),
    { type: 'RUN_ERROR', message: 'late' },
  ])
  expect(events.slice(6)).toEqual([
    end('a'),
    callEnd('t'),
    { type: 'REASONING_MESSAGE_END', messageId: 'r' },
    { type: 'REASONING_END', messageId: 'r' },
    { type: 'STEP_FINISHED', stepName: 'plan' },
    { type: 'SUBAGENT_FINISHED', subagentRunId: 's' },
  ])
  expect(ending).toEqual({
    kind: 'finished',
    result: { outcome: 'success', result: { n: 1 }, usage: [{ inputTokens: 1 }] },
  })
})

test('an interrupt names the call by its id in our log', () => {
  const outcome = {
    type: 'interrupt',
    interrupts: [{ id: 'i', reason: 'tool_call', toolCallId: 't' }],
  }
  const { ending } = normalise([call('t'), { ...finished, outcome }], { usedIds: ['t'] })
  expect(ending).toMatchObject({
    result: { outcome: 'interrupt', interrupts: [{ id: 'i', toolCallId: 'run.1.m1' }] },
  })
})

test('NUL and lone surrogates are replaced, and pairs cut between two deltas are joined', () => {
  const { push } = normaliser()
  const said = [
    start('a'),
    text('a', 'ok\u0000end half \ud83d stop \ud83d'),
    text('a', '\ude00!'),
    text('a', '\ud83d'),
    finished,
  ].flatMap((value) => push(value).events)
  const deltas = said.flatMap((event) =>
    'delta' in event && typeof event.delta === 'string' ? [event.delta] : [],
  )
  expect(deltas.join('')).toBe('ok\ufffdend half \ufffd stop 😀!\ufffd')
  expect(deltas.every((delta) => delta.isWellFormed())).toBe(true)
  expect(said.at(-1)).toEqual(end('a'))
  expect(eventsOf([result('t', 'r'), { type: 'CUSTOM', name: 'c', value: 'D\u0000' }])).toEqual([
    { type: 'CUSTOM', name: 'c', value: 'D\ufffd' },
  ])
})

test('a user message that only repeats the history is left out', () => {
  const echo = [start('u2', { role: 'user' }), text('u2', 'and now?'), end('u2')]
  expect(eventsOf(echo, { history: HISTORY })).toEqual([])
})

test('a reserved custom name is left out', () => {
  expect(eventsOf([{ type: 'CUSTOM', name: 'holdfast.attempt', value: {} }])).toEqual([])
})

test('subagents of a later attempt get new handles, since readers saw the old ones end', () => {
  const stream = [
    { type: 'SUBAGENT_STARTED', subagentRunId: 's', name: 'helper' },
    start('a', { subagentRunId: 's' }),
    text('a', 'x', { subagentRunId: 's' }),
    { type: 'SUBAGENT_FINISHED', subagentRunId: 's' },
  ]
  expect(eventsOf(stream)).toEqual([stream[0], stream[1], text('a', 'x'), stream[3]])
  expect(eventsOf(stream, { epoch: 2 })).toMatchObject([
    { subagentRunId: 'run.2.m1' },
    { messageId: 'a', subagentRunId: 'run.2.m1' },
    { messageId: 'a' },
    { subagentRunId: 'run.2.m1' },
  ])
})
