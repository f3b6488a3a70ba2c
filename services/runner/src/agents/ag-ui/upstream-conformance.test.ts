import { readdirSync, readFileSync } from 'node:fs'
import { type AgUiEvent, coalesce, type Message, parseAgentsFile } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { AgentFailure, type AgentResult } from '../agent.ts'
import { recordedRun } from '../testing/recorded-run.ts'
import { type Script, scriptedUpstream } from '../testing/scripted-upstream.ts'
import { createSseReader, SSE_CAPS, type SseCaps } from '../upstream/sse-reader.ts'
import { createAgUiAgent } from './ag-ui-agent.ts'
import { createEventNormaliser } from './normalise-events.ts'

const FOLDER = new URL('../../../../../test/conformance/upstream/', import.meta.url)

type Case = {
  rule: string
  response?: { status?: number; headers?: Record<string, string>; ending?: Script['ending'] }
  run?: {
    history?: Message[]
    usedIds?: string[]
    idleTimeoutMs?: number
    progressTimeoutMs?: number
  }
  caps?: SseCaps
  events: AgUiEvent[]
  result?: AgentResult
  failure?: { code: string; retryable: boolean; retryAfterMs?: number }
}

const cases = readdirSync(FOLDER)
  .filter((file) => file.endsWith('.json'))
  .map((file) => {
    const name = file.slice(0, -'.json'.length)
    const expected: Case = JSON.parse(readFileSync(new URL(file, FOLDER), 'utf8'))
    return { name, expected, bytes: readFileSync(new URL(`${name}.sse`, FOLDER)) }
  })

/** Where deltas are cut depends on the wire; what they say does not. */
const said = (events: readonly AgUiEvent[]) => coalesce([...events])

for (const { name, expected, bytes } of cases) {
  for (const pieceBytes of [undefined, 7]) {
    const how = pieceBytes === undefined ? 'at once' : 'in small pieces'
    test(`${name}: ${expected.rule} (${how})`, async () => {
      const { usedIds = [], history, ...limits } = expected.run ?? {}
      const run = recordedRun({ usedIds: new Set(usedIds), ...(history && { history }) })
      const ending = expected.response?.ending ?? 'end'
      await using upstream = await scriptedUpstream({
        ...expected.response,
        body: bytes,
        ...(pieceBytes !== undefined && { pieceBytes }),
        // A reset throws away what was not read yet, so it waits until all has been.
        ending:
          ending === 'reset' && bytes.length > 0 && expected.events.length === 0 ? 'cut' : ending,
        before: run.emitted(ending === 'reset' ? expected.events.length : 0),
      })
      const agent = createAgUiAgent(specOf(upstream.url, limits), {
        outbound: { allow: [], openMode: true },
        ...(expected.caps && { caps: expected.caps }),
      })
      const outcome = await agent.run(run).catch((error: unknown) => error)
      if (expected.failure) {
        expect(outcome).toBeInstanceOf(AgentFailure)
        expect(outcome).toMatchObject(expected.failure)
      } else expect(outcome).toEqual(expected.result)
      expect(said(run.events)).toEqual(said(expected.events))
      expect(JSON.stringify(run.events)).not.toContain('sk-MARK')
      run.expectNoListeners()
      await upstream.allClosed()
      expect(upstream.requests).toHaveLength(1)
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
    expect(said(events), `cut at ${at}`).toEqual(said(given.expected.events))
  }
})

test('the folder holds the cases', () => {
  expect(cases.length).toBeGreaterThan(50)
})

test('a long honest stream passes under the built-in caps', () => {
  const reader = createSseReader()
  const event = Buffer.from(`data: ${JSON.stringify({ type: 'x', text: 'y'.repeat(200_000) })}\n\n`)
  for (let count = 0; count < 300; count += 1) expect(reader.push(event).data).toHaveLength(1)
  const failures = Array.from({ length: 100 }, () => reader.push(event).failure)
  expect(failures.at(-1)).toMatchObject({ code: 'limit_exceeded' })
})

test.each([
  ['a line', Buffer.alloc(SSE_CAPS.lineBytesMax + 1, 'x')],
  ['an event', Buffer.from(`data:${'y'.repeat(1000)}\n`.repeat(9000))],
])('%s over the cap is refused before it is complete', (_what, bytes) => {
  expect(createSseReader().push(bytes).failure).toMatchObject({ code: 'limit_exceeded' })
})

function specOf(url: string, limits: object) {
  const file = parseAgentsFile({ agents: { a: { type: 'ag-ui', url, ...limits } } }, {})
  const spec = file.agents.a
  if (spec?.type !== 'ag-ui') throw new Error('expected an ag-ui agent')
  return spec
}

function eventsOf({ run, caps }: Case, parts: Uint8Array[]): AgUiEvent[] {
  const reader = createSseReader(caps)
  const { usedIds = [], history = [] } = run ?? {}
  const normaliser = createEventNormaliser(recordedRun({ usedIds: new Set(usedIds), history }))
  const data = [...parts.flatMap((part) => reader.push(part).data), ...reader.end()]
  return data
    .filter((one) => one.trim() !== '[DONE]' && !one.startsWith(':'))
    .flatMap((one) => normaliser.push(JSON.parse(one)).events)
}
