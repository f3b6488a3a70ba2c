import { verifyEvents } from '@ag-ui/client'
import { type AgUiEvent, EventType, emptyFold, foldEvents, type Message } from '@holdfast/protocol'
import fc from 'fast-check'
import { pino } from 'pino'
import { from, lastValueFrom, toArray } from 'rxjs'
import { expect, test } from 'vitest'
import { AgentFailure } from '../agent.ts'
import { createEventNormaliser, type Normalised } from './normalise-events.ts'

const log = pino({ level: 'silent' })
const HISTORY: Message[] = [
  { id: 'a', role: 'user', content: 'hello' },
  { id: 'b', role: 'assistant', content: 'Hello!' },
  { id: 'u', role: 'user', content: 'again' },
]

const id = fc.constantFrom('a', 'b', 'c', 'd', 'e')
const owner = fc.option(fc.constantFrom('s1', 's2'), { nil: undefined, freq: 3 })
const delta = fc.constantFrom('', 'x', 'word ', '\ud83d', '\ude00', '\u0000')

/** An event of the type with the fields drawn; those drawn as `undefined` are absent. */
function eventOf(type: string, fields: Record<string, fc.Arbitrary<unknown>> = {}) {
  return fc
    .record({ subagentRunId: owner, ...fields })
    .map((drawn) =>
      Object.fromEntries(
        Object.entries({ type, ...drawn }).filter(([, value]) => value !== undefined),
      ),
    )
}

const optional = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined })
const message = fc.oneof(
  fc.record({ id, role: fc.constant('assistant'), content: fc.constantFrom('x', 'y') }),
  fc.record({ id, role: fc.constant('user'), content: fc.constantFrom('hello', 'again') }),
  fc.record({ id, role: fc.constant('reasoning'), content: fc.constant('so') }),
)

/** Any order at all, over few ids, so that they collide in every way. */
const upstreamEvent = fc.oneof(
  eventOf('TEXT_MESSAGE_START', { messageId: id }),
  eventOf('TEXT_MESSAGE_CONTENT', { messageId: id, delta }),
  eventOf('TEXT_MESSAGE_END', { messageId: id }),
  eventOf('TEXT_MESSAGE_CHUNK', { messageId: optional(id), delta: optional(delta) }),
  eventOf('TOOL_CALL_START', {
    toolCallId: id,
    toolCallName: fc.constant('look'),
    parentMessageId: optional(id),
  }),
  eventOf('TOOL_CALL_ARGS', { toolCallId: id, delta }),
  eventOf('TOOL_CALL_END', { toolCallId: id }),
  eventOf('TOOL_CALL_CHUNK', {
    toolCallId: optional(id),
    toolCallName: fc.constant('look'),
    parentMessageId: optional(id),
    delta: optional(delta),
  }),
  eventOf('TOOL_CALL_RESULT', { messageId: id, toolCallId: id, content: fc.constant('found') }),
  eventOf('REASONING_START', { messageId: id }),
  eventOf('REASONING_END', { messageId: id }),
  eventOf('REASONING_MESSAGE_START', { messageId: id, role: fc.constant('reasoning') }),
  eventOf('REASONING_MESSAGE_CONTENT', { messageId: id, delta }),
  eventOf('REASONING_MESSAGE_END', { messageId: id }),
  eventOf('REASONING_MESSAGE_CHUNK', { messageId: optional(id), delta: optional(delta) }),
  eventOf('REASONING_ENCRYPTED_VALUE', {
    subtype: fc.constantFrom('message', 'tool-call'),
    entityId: id,
    encryptedValue: fc.constant('e'),
  }),
  eventOf('ACTIVITY_SNAPSHOT', {
    messageId: id,
    activityType: fc.constant('plan'),
    content: fc.constant({ n: 0 }),
    replace: optional(fc.boolean()),
  }),
  eventOf('ACTIVITY_DELTA', {
    messageId: id,
    activityType: fc.constant('plan'),
    patch: fc.constant([{ op: 'replace', path: '/n', value: 1 }]),
  }),
  eventOf('STEP_STARTED', { stepName: fc.constantFrom('p', 'q') }),
  eventOf('STEP_FINISHED', { stepName: fc.constantFrom('p', 'q') }),
  eventOf('STATE_SNAPSHOT', { snapshot: fc.constant({ n: 1 }) }),
  eventOf('SUBAGENT_STARTED', {
    subagentRunId: fc.constantFrom('s1', 's2'),
    name: fc.constant('helper'),
    parentSubagentRunId: owner,
  }),
  eventOf('SUBAGENT_FINISHED', { subagentRunId: fc.constantFrom('s1', 's2') }),
  eventOf('CUSTOM', { name: fc.constant('note'), value: fc.constant(1) }),
  fc.array(message, { maxLength: 4 }).map((messages) => ({ type: 'MESSAGES_SNAPSHOT', messages })),
  fc.constantFrom(
    { type: 'THINKING_START' },
    { type: 'THINKING_TEXT_MESSAGE_CONTENT', delta: 'so' },
    { type: 'THINKING_TEXT_MESSAGE_END' },
    { type: 'THINKING_END' },
  ),
)

/** The attempt's part of the log, and whether the upstream's own end was reached. */
function attempt(values: readonly unknown[], epoch: number, usedIds: ReadonlySet<string>) {
  const normaliser = createEventNormaliser({
    runId: 'run',
    epoch,
    usedIds,
    history: HISTORY,
    messages: HISTORY,
    log,
  })
  const events: AgUiEvent[] = []
  let ending: Normalised['ending']
  try {
    for (const value of [...values, { type: 'RUN_FINISHED', threadId: 't', runId: 'r' }]) {
      const normalised = normaliser.push(value)
      events.push(...normalised.events)
      ending = normalised.ending
    }
  } catch (error) {
    if (!(error instanceof AgentFailure)) throw error
    events.push(...normaliser.flush())
  }
  return { events, isWhole: ending !== undefined }
}

async function verified(events: readonly AgUiEvent[]) {
  await lastValueFrom(from(events).pipe(verifyEvents(), toArray()))
}

const started: AgUiEvent = {
  type: EventType.RUN_STARTED,
  threadId: 't',
  runId: 'run',
  input: { threadId: 't', runId: 'run', messages: HISTORY, tools: [], context: [] },
}

const sequences = fc.array(upstreamEvent, { maxLength: 40 })

test('whatever an upstream sends, AG-UI’s own verifier accepts what gets into the log', async () => {
  await fc.assert(
    fc.asyncProperty(sequences, fc.integer({ min: 1, max: 2 }), async (values, epoch) => {
      const { events, isWhole } = attempt(values, epoch, new Set(['c']))
      const last: AgUiEvent = isWhole
        ? { type: EventType.RUN_FINISHED, threadId: 't', runId: 'run' }
        : { type: EventType.RUN_ERROR, message: 'failed' }
      await verified([started, ...events, last])
    }),
    { numRuns: 1000 },
  )
})

test('what gets into the log folds to well-formed messages with ids that were free', () => {
  fc.assert(
    fc.property(sequences, (values) => {
      const { events } = attempt(values, 1, new Set(['c']))
      const before = { ...emptyFold(), messages: HISTORY }
      const { messages } = foldEvents(before, events)
      expect(messages.slice(0, HISTORY.length)).toEqual(HISTORY)
      const ids = messages.map((one) => one.id)
      expect(new Set(ids).size).toBe(ids.length)
      expect(ids.slice(HISTORY.length)).not.toContain('c')
      expect(JSON.stringify(messages)).not.toMatch(/\\ud[89a-f]|\\u0000/)
    }),
    { numRuns: 1000 },
  )
})

test('no text of an upstream is lost or doubled', () => {
  fc.assert(
    fc.property(fc.array(fc.tuple(id, fc.constantFrom('x', 'yz', '\ud83d', '\ude00'))), (parts) => {
      const values = parts.map(([messageId, part], index) => ({
        type: index % 2 === 0 ? 'TEXT_MESSAGE_CHUNK' : 'TEXT_MESSAGE_CONTENT',
        messageId,
        delta: part,
      }))
      const said = foldEvents(emptyFold(), attempt(values, 1, new Set()).events).messages
      const letters = (text: string) => [...text.replaceAll(/[^xyz]/g, '')].sort().join('')
      const textOf = (one: Message) => (typeof one.content === 'string' ? one.content : '')
      expect(letters(said.map(textOf).join(''))).toBe(
        letters(parts.map(([, part]) => part).join('')),
      )
    }),
  )
})
