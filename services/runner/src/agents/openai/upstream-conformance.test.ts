import { type AgUiEvent, parseAgentsFile } from '@holdfast/protocol'
import { pino } from 'pino'
import { expect, test } from 'vitest'
import { createRunIds } from '../run-ids.ts'
import { recordedRun } from '../testing/recorded-run.ts'
import { readCases, replay, runOf, said, type UpstreamCase } from '../testing/upstream-cases.ts'
import { DONE, eventValues } from '../upstream/event-values.ts'
import { createSseReader } from '../upstream/sse-reader.ts'
import { chatPiece } from './chat-piece.ts'
import { createCompletion } from './completion.ts'
import { createOpenAiAgent } from './openai-agent.ts'

const cases = readCases('openai/')

for (const given of cases) {
  for (const pieceBytes of [undefined, 7]) {
    const how = pieceBytes === undefined ? 'at once' : 'in small pieces'
    test(`${given.name}: ${given.expected.rule} (${how})`, async () => {
      await replay(given, pieceBytes, agentAt)
    })
  }
}

const streams = cases.filter(
  ({ expected, bytes }) =>
    expected.result && bytes.length < 3000 && !expected.response?.headers?.['content-type'],
)

test.each(streams)('$name: the same events wherever the bytes are cut in two', (given) => {
  for (let at = 0; at <= given.bytes.length; at += 1) {
    const events = eventsOf(given.expected, [given.bytes.subarray(0, at), given.bytes.subarray(at)])
    const expected = given.expected.events.filter(({ type }) => type !== 'TOOL_CALL_RESULT')
    expect(said(events), `cut at ${at}`).toEqual(said(expected))
  }
})

test('the folder holds the cases', () => {
  expect(cases.length).toBeGreaterThan(50)
})

function agentAt(url: string, { run = {}, caps }: UpstreamCase) {
  const { usedIds: _, history: __, tools: ___, ...limits } = run
  const spec = { type: 'openai', baseUrl: url, model: 'scripted', ...limits }
  const { a } = parseAgentsFile({ agents: { a: spec } }, {}).agents
  if (a?.type !== 'openai') throw new Error('expected an openai agent')
  return createOpenAiAgent(a, {
    outbound: { allow: [], openMode: true },
    log: pino({ level: 'silent' }),
    caps,
  })
}

function eventsOf(expected: UpstreamCase, parts: Uint8Array[]): AgUiEvent[] {
  const run = recordedRun(runOf(expected))
  const reader = createSseReader(expected.caps)
  const completion = createCompletion(createRunIds(run))
  const data = [...parts.flatMap((part) => reader.push(part).data), ...reader.end()]
  const values = [...eventValues(data, run.log)]
  const done = values.indexOf(DONE)
  const counted = done < 0 ? values : values.slice(0, done)
  return [
    ...counted.flatMap((value) => completion.push(chatPiece(value))),
    ...completion.end().events,
  ]
}
