import { type AgUiEvent, emptyFold, foldEvents, type Message } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { AgentFailure, type AgentRun } from './agent.ts'
import { createDemoAgent } from './demo.ts'
import { demoCommands } from './demo-answer.ts'
import { recordedRun } from './testing/recorded-run.ts'

const user = (content: string): Message => ({ id: 'u', role: 'user', content })

async function answerTo(content: string, given: Partial<AgentRun> = {}) {
  const run = recordedRun({ messages: [user(content)], ...given })
  const outcome = await createDemoAgent()
    .run(run)
    .catch((error: unknown) => error)
  return { events: run.events, outcome, fold: foldEvents(emptyFold(), run.events) }
}

const textOf = (events: readonly AgUiEvent[]) =>
  foldEvents(emptyFold(), events)
    .messages.filter((message) => message.role === 'assistant')
    .map((message) => message.content ?? '')
    .join('')

test('the answer repeats what was said, counts the turns and is the same every time', async () => {
  const first = await answerTo('good morning', { messages: [user('hi'), user('good morning')] })
  expect(textOf(first.events)).toContain('turn 2')
  expect(textOf(first.events)).toContain('“good morning”')
  expect(first.outcome).toEqual({ outcome: 'success' })
  const again = await answerTo('good morning', { messages: [user('hi'), user('good morning')] })
  expect(again.events).toEqual(first.events)
  const deltas = first.events.filter((event) => event.type === 'TEXT_MESSAGE_CONTENT')
  expect(deltas.length).toBeGreaterThan(10)
})

test('it mentions what the page gave it', async () => {
  const { events } = await answerTo('hi', {
    context: [{ description: 'page', value: '/' }],
    tools: [
      { name: 'a', description: '' },
      { name: 'b', description: '' },
    ],
  })
  expect(textOf(events)).toContain('1 thing')
  expect(textOf(events)).toContain('2 tools')
})

test('/tool calls a tool, has its result and then speaks about it', async () => {
  const { fold } = await answerTo('/tool weather in Rome')
  expect(fold.messages.map((message) => message.role)).toEqual(['assistant', 'tool', 'assistant'])
  expect(fold.messages[0]).toMatchObject({
    toolCalls: [
      { function: { name: 'demo_lookup', arguments: '{"query":"weather in Rome","limit":3}' } },
    ],
  })
  expect(fold.messages[2]?.content).toContain('weather in Rome')
})

test('commands stand together in one message, and each does its part', async () => {
  const { events, fold } = await answerTo('tell me /think /state /activity /tool x /long 5')
  expect([...new Set(events.map((event) => event.type))]).toEqual([
    'REASONING_START',
    'REASONING_MESSAGE_START',
    'REASONING_MESSAGE_CONTENT',
    'REASONING_MESSAGE_END',
    'REASONING_END',
    'STATE_SNAPSHOT',
    'STATE_DELTA',
    'ACTIVITY_SNAPSHOT',
    'ACTIVITY_DELTA',
    'TOOL_CALL_START',
    'TOOL_CALL_ARGS',
    'TOOL_CALL_END',
    'TOOL_CALL_RESULT',
    'TEXT_MESSAGE_START',
    'TEXT_MESSAGE_CONTENT',
    'TEXT_MESSAGE_END',
  ])
  expect(fold.open).toEqual([])
  expect(fold.state).toEqual({ demo: { turn: 1, done: true } })
  expect(fold.messages.at(-1)?.content).toBe('word1 word2 word3 word4 word5')
})

test('/file leaves a file and says so', async () => {
  const files: unknown[] = []
  const { events } = await answerTo('/file 3', {
    artifact: async (...file) => void files.push(file),
  })
  const mediaType = 'text/plain; charset=utf-8'
  expect(files).toEqual([['words.txt', { mediaType }, 'word1 word2 word3']])
  expect(textOf(events)).toContain('I wrote 3 words into words.txt.')
})

test('/fail says something and then fails as an agent', async () => {
  const { events, outcome } = await answerTo('/fail')
  expect(textOf(events)).not.toBe('')
  expect(outcome).toBeInstanceOf(AgentFailure)
  expect(outcome).toMatchObject({ code: 'agent_error', retryable: false })
})

test('/slow spreads the words over the seconds, and an abort does not wait for them', async () => {
  const before = performance.now()
  await answerTo('/slow 0.3')
  expect(performance.now() - before).toBeGreaterThan(290)
  const run = recordedRun({ messages: [user('/slow 3000')] })
  const failed = createDemoAgent()
    .run(run)
    .catch((error: unknown) => error)
  await run.emitted(1)
  run.abort.abort(new Error('cancel'))
  expect(await failed).toMatchObject({ message: 'cancel' })
  run.expectNoListeners()
})

test('ids are unique and belong to the attempt', async () => {
  const { fold } = await answerTo('/think /tool x /activity', { epoch: 7 })
  const ids = fold.messages.map((message) => message.id)
  expect(new Set(ids).size).toBe(ids.length)
  expect(ids.every((id) => id.startsWith('run.7.'))).toBe(true)
})

test('commands are words of their own, and numbers have limits', () => {
  const commands = (text: string) => demoCommands([user(text)])
  expect(commands('a/tool b and /toolbox')).toMatchObject({ text: 'a/tool b and /toolbox' })
  expect(commands('hi /slow 3 there')).toMatchObject({ text: 'hi there', slowSeconds: 3 })
  expect(commands('/slow')).toMatchObject({ slowSeconds: 5 })
  expect(commands('/long 999999999')).toMatchObject({ longWords: 200_000 })
  expect(commands('/tool')).toMatchObject({ tool: 'holdfast' })
})
