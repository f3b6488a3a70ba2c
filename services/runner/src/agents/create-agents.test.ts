import { BUILT_IN_AGENTS, parseAgentsFile } from '@holdfast/protocol'
import { pino } from 'pino'
import { expect, test } from 'vitest'
import { createAgents } from './create-agents.ts'

const deps = {
  outbound: { allow: [], openMode: false },
  log: pino({ level: 'silent' }),
  modules: {
    load: (path: string) => Promise.reject(new Error(`module ${path}: no such file`)),
    async [Symbol.asyncDispose]() {},
  },
  strays: { within: <T>(_origin: unknown, body: () => T) => body(), [Symbol.dispose]() {} },
}

test('each agent of the file is made, and nothing is resolved', async () => {
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
  const agents = await createAgents(file, deps)
  expect([...agents].map(([name, agent]) => [name, agent.type])).toEqual([
    ['d', 'demo'],
    ['a', 'ag-ui'],
    ['o', 'openai'],
  ])
  expect([...(await createAgents(BUILT_IN_AGENTS, deps)).keys()]).toEqual(['demo'])
})

test('agents that cannot be used are refused by name with the reason, all at once', async () => {
  const file = parseAgentsFile(
    {
      agents: {
        his: { type: 'module', path: './his.ts' },
        mine: { type: 'module', path: './mine.ts' },
      },
    },
    {},
  )
  await expect(createAgents(file, deps)).rejects.toThrow(
    'agent his: module ./his.ts: no such file; agent mine: module ./mine.ts: no such file',
  )
})
