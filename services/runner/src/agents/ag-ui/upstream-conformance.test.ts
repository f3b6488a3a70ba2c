import { parseAgentsFile } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { testEveryCut, testEveryReset } from '../testing/every-cut.ts'
import { readCases, replay, type UpstreamCase } from '../testing/upstream-cases.ts'
import { createSseReader, SSE_CAPS } from '../upstream/sse-reader.ts'
import { createAgUiAgent } from './ag-ui-agent.ts'
import { agUi } from './testing/protocol.ts'

const cases = readCases('./')

for (const given of cases) {
  for (const pieceBytes of [undefined, 7]) {
    const how = pieceBytes === undefined ? 'at once' : 'in small pieces'
    test(`${given.name}: ${given.expected.rule} (${how})`, async () => {
      await replay(given, pieceBytes, agentAt)
    })
  }
}

testEveryCut(cases, agUi)
testEveryReset(
  cases.find(({ name }) => name === 'plain'),
  agUi,
  agentAt,
)

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

function agentAt(url: string, { run = {}, caps }: UpstreamCase) {
  const { usedIds: _, history: __, tools: ___, ...limits } = run
  const { a } = parseAgentsFile({ agents: { a: { type: 'ag-ui', url, ...limits } } }, {}).agents
  if (a?.type !== 'ag-ui') throw new Error('expected an ag-ui agent')
  return createAgUiAgent(a, { outbound: { allow: [], openMode: true }, ...(caps && { caps }) })
}
