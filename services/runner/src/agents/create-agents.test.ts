import { BUILT_IN_AGENTS, parseAgentsFile } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { createAgents } from './create-agents.ts'

const deps = { outbound: { allow: [], openMode: false } }

test('each agent of the file is made, and nothing is resolved', () => {
  const file = parseAgentsFile(
    {
      agents: {
        d: { type: 'demo' },
        a: { type: 'ag-ui', url: 'http://no-such-host.invalid/' },
        o: { type: 'openai', baseUrl: 'http://no-such-host.invalid/v1', model: 'm' },
      },
    },
    {},
  )
  const agents = createAgents(file, deps)
  expect([...agents].map(([name, agent]) => [name, agent.type])).toEqual([
    ['d', 'demo'],
    ['a', 'ag-ui'],
    ['o', 'openai'],
  ])
  expect([...createAgents(BUILT_IN_AGENTS, deps).keys()]).toEqual(['demo'])
})

test('types that this version does not have are refused by name, all at once', () => {
  const file = parseAgentsFile(
    {
      agents: {
        his: { type: 'module', path: './his.ts' },
        mine: { type: 'module', path: './mine.ts' },
      },
    },
    {},
  )
  expect(() => createAgents(file, deps)).toThrow(
    'agent his: type module is not available in this version; agent mine: type module is not',
  )
})
