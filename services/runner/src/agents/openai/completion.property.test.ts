import { verifyEvents } from '@ag-ui/client'
import { type AgUiEvent, closingEvents, EventType, emptyFold, foldEvents } from '@holdfast/protocol'
import fc from 'fast-check'
import { pino } from 'pino'
import { from, lastValueFrom, toArray } from 'rxjs'
import { expect, test } from 'vitest'
import { AgentFailure } from '../agent.ts'
import { createRunIds } from '../run-ids.ts'
import { recordedRun } from '../testing/recorded-run.ts'
import { readCases } from '../testing/upstream-cases.ts'
import { DONE, eventValues } from '../upstream/event-values.ts'
import { createSseReader } from '../upstream/sse-reader.ts'
import { chatPiece } from './chat-piece.ts'
import { createCompletion } from './completion.ts'

const SEED = 20_261_130
const started = { type: EventType.RUN_STARTED, threadId: 't', runId: 'r' } as const

const text = fc.constantFrom(undefined, null, '', 'x', ' word', '\ud83d', '\ude00', '\u0000', 7, {})
const loose = (fields: Record<string, fc.Arbitrary<unknown>>) =>
  fc.record(fields, { requiredKeys: [] })
const call = loose({
  index: fc.constantFrom(0, 1, null, '0'),
  id: fc.constantFrom('a', 'b', '', null),
  function: fc.oneof(
    loose({ name: fc.constantFrom('now', 'find', '', null), arguments: text }),
    fc.constantFrom(null, 'now'),
  ),
})
const delta = fc.oneof(
  loose({
    content: fc.oneof(text, fc.array(loose({ type: fc.constantFrom('text', 'thinking'), text }))),
    reasoning_content: text,
    refusal: text,
    tool_calls: fc.oneof(fc.array(call, { maxLength: 3 }), fc.constantFrom(null, {}, 'now')),
    function_call: fc.oneof(call, fc.constant(null)),
  }),
  fc.constantFrom(null, [], 'x'),
)
const chunk = fc.oneof(
  loose({
    choices: fc.oneof(
      fc.array(loose({ index: fc.constantFrom(0, 1), delta, finish_reason: text }), {
        maxLength: 2,
      }),
      fc.constantFrom(null, {}),
    ),
    usage: fc.oneof(fc.constant(null), loose({ prompt_tokens: fc.anything() })),
  }),
  fc.anything(),
)

/** What the log would hold, closed as the end of a run closes it, and whether the model was taken to have answered. */
function logOf(values: readonly unknown[]): { events: AgUiEvent[]; isWhole: boolean } {
  const completion = createCompletion(createRunIds(recordedRun({ history: [] })))
  const events: AgUiEvent[] = [started]
  let isWhole = false
  try {
    for (const value of values) events.push(...completion.push(chatPiece(value)))
    isWhole = completion.finishReason !== undefined
    events.push(...(isWhole ? completion.end().events : completion.flush()))
  } catch (error) {
    if (!(error instanceof AgentFailure)) throw error
    isWhole = false
  }
  const fold = foldEvents(emptyFold(), events)
  let minted = 0
  const mintId = () => {
    minted += 1
    return `closing-${minted}`
  }
  return { events: [...events, ...closingEvents(fold, { answerTools: true, mintId })], isWhole }
}

async function expectValid(events: readonly AgUiEvent[]): Promise<void> {
  const finished = { type: EventType.RUN_FINISHED, threadId: 't', runId: 'r' } as AgUiEvent
  const all = [...events, finished].map((event) => structuredClone(event))
  await lastValueFrom(from(all).pipe(verifyEvents(), toArray()))
  for (const event of events) {
    expect(JSON.stringify(event)).not.toMatch(/\\u0000|\\ud[89a-f]/)
  }
}

test('whatever a server sends becomes a valid log or a failure', { timeout: 60_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(chunk, { maxLength: 12 }), async (values) => {
      await expectValid(logOf(values).events)
    }),
    { seed: SEED, numRuns: 1500 },
  )
})

test('damaged bytes never make a crash, and a cut never an answer', {
  timeout: 60_000,
}, async () => {
  const log = pino({ level: 'silent' })
  const cases = readCases('openai/').filter(({ bytes }) => bytes.length > 0)
  const damage = fc.record({
    from: fc.constantFrom(...cases),
    keep: fc.double({ min: 0, max: 1, noNaN: true }),
    flips: fc.array(fc.tuple(fc.nat(), fc.nat(255)), { maxLength: 4 }),
  })
  await fc.assert(
    fc.asyncProperty(damage, async ({ from: { bytes, expected }, keep, flips }) => {
      const damaged = Uint8Array.from(bytes.subarray(0, Math.ceil(bytes.length * keep)))
      for (const [at, byte] of flips) damaged[at % damaged.length] = byte
      const reader = createSseReader()
      const values: unknown[] = []
      try {
        for (const value of eventValues(reader.push(damaged).data, log)) {
          if (value === DONE) break
          values.push(value)
        }
      } catch (error) {
        expect(error).toBeInstanceOf(AgentFailure)
      }
      const { events, isWhole } = logOf(values)
      await expectValid(events)
      const lost = flips.length === 0 && expected.failure?.code === 'upstream_truncated'
      if (lost) expect(isWhole).toBe(false)
    }),
    { seed: SEED, numRuns: 1500 },
  )
})
