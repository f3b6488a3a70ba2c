import { parseAgentsFile } from '@holdfast/protocol'
import { pino } from 'pino'
import { expect, test } from 'vitest'
import { testEveryCut, testEveryReset } from '../testing/every-cut.ts'
import { readCases, replay, type UpstreamCase } from '../testing/upstream-cases.ts'
import { createOpenAiAgent } from './openai-agent.ts'
import { openAi } from './testing/protocol.ts'

const cases = readCases('openai/')

for (const given of cases) {
  for (const pieceBytes of [undefined, 7]) {
    const how = pieceBytes === undefined ? 'at once' : 'in small pieces'
    test(`${given.name}: ${given.expected.rule} (${how})`, async () => {
      await replay(given, pieceBytes, agentAt)
    })
  }
}

testEveryCut(cases, openAi)
testEveryReset(
  cases.find(({ name }) => name === 'plain'),
  openAi,
  agentAt,
)

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
