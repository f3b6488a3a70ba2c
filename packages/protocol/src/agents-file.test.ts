import { HoldfastError } from '@holdfast/std'
import { expect, test } from 'vitest'
import { agentLimits, BUILT_IN_AGENTS, defaultAgent, parseAgentsFile } from './agents-file.ts'

function problemsOf(json: unknown, env: Record<string, string | undefined> = {}) {
  try {
    parseAgentsFile(json, env)
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error
    return { message: error.message, errors: error.details.errors }
  }
  throw new Error('the file was accepted')
}

test('every limit has the documented default, and a demo agent has no effects', () => {
  const file = parseAgentsFile(
    { agents: { a: { type: 'ag-ui', url: 'http://127.0.0.1:1/' }, d: { type: 'demo' } } },
    {},
  )
  const limits = {
    maxAttempts: 3,
    onLost: 'restart',
    effects: 'unknown',
    deadlineMs: 600_000,
    maxQueueMs: 86_400_000,
    idleTimeoutMs: 120_000,
    progressTimeoutMs: 120_000,
    connectTimeoutMs: 10_000,
    history: 'all',
  }
  expect(file.agents.a).toEqual({
    type: 'ag-ui',
    url: 'http://127.0.0.1:1/',
    headers: {},
    ...limits,
  })
  expect(file.agents.d).toEqual({ type: 'demo', ...limits, effects: 'none' })
  expect(file.agents.a && agentLimits(file.agents.a)).toEqual(limits)
})

test('variables of the environment are filled into strings, also more than one in a string', () => {
  const file = parseAgentsFile(
    {
      agents: {
        a: {
          type: 'ag-ui',
          url: `http://${'${HOST}'}:${'${PORT}'}/`,
          headers: { authorization: `Bearer ${'${KEY}'}`, 'x-user': '{user}' },
        },
      },
    },
    { HOST: 'agent.test', PORT: '8080', KEY: 'k' },
  )
  expect(file.agents.a).toMatchObject({
    url: 'http://agent.test:8080/',
    headers: { authorization: 'Bearer k', 'x-user': '{user}' },
  })
})

test('a variable that is not set is named, with the place that needs it, once', () => {
  const { message, errors } = problemsOf({
    agents: { a: { type: 'ag-ui', url: `${'${AGENT_URL}'}` } },
  })
  expect(errors).toEqual([
    { path: 'agents.a.url', message: 'environment variable AGENT_URL is not set' },
  ])
  expect(message).toContain('AGENT_URL')
})

test('all problems are reported together, each with its path', () => {
  const { errors } = problemsOf({
    defualt: 'a',
    agents: {
      a: { type: 'demo', maxAttempt: 3, deadlineMs: 0 },
      b: { type: 'ag-ui', url: 'ftp://x/' },
      c: { type: 'robot' },
    },
  })
  const paths = (errors as { path: string }[]).map((error) => error.path)
  expect(new Set(paths)).toEqual(
    new Set([
      'defualt',
      'agents.a.maxAttempt',
      'agents.a.deadlineMs',
      'agents.b.url',
      'agents.c.type',
    ]),
  )
})

test('agent names are 1 to 64 letters, digits, dots, dashes and underscores', () => {
  expect(problemsOf({ agents: { 'a b': { type: 'demo' } } }).message).toContain('agents.a b')
  expect(problemsOf({ agents: { ['x'.repeat(65)]: { type: 'demo' } } }).message).toContain(
    '1 to 64',
  )
  expect(problemsOf({ agents: {} }).message).toContain('at least one agent')
})

test('the default is the given one, else the first, and must name an agent of the file', () => {
  const agents = { one: { type: 'demo' }, two: { type: 'demo' } }
  expect(defaultAgent(parseAgentsFile({ agents }, {}))).toBe('one')
  expect(defaultAgent(parseAgentsFile({ default: 'two', agents }, {}))).toBe('two')
  expect(problemsOf({ default: 'three', agents }).message).toContain('default')
  expect(defaultAgent(BUILT_IN_AGENTS)).toBe('demo')
})

test('a URL with credentials and a header that the request sets itself are refused', () => {
  const url = 'http://agent.test/'
  const agent = (spec: object) => ({ agents: { a: { type: 'ag-ui', url, ...spec } } })
  expect(problemsOf(agent({ url: 'http://u:p@agent.test/' })).message).toContain('credentials')
  expect(problemsOf(agent({ headers: { 'Content-Length': '1' } })).message).toContain('headers')
  expect(problemsOf(agent({ headers: { 'x-a': 'line\nbreak' } })).message).toContain('headers.x-a')
})

test('openai and module agents are understood', () => {
  const file = parseAgentsFile(
    {
      agents: {
        o: {
          type: 'openai',
          baseUrl: 'http://127.0.0.1:1/v1',
          model: 'm',
          mcpServers: { files: { command: 'npx', args: ['-y', 'x'] }, web: { url: 'https://x/' } },
          tools: { files__write: { onInDoubt: 'stop', approval: true } },
        },
        m: { type: 'module', path: './agents/report.ts' },
      },
    },
    {},
  )
  expect(file.agents.o).toMatchObject({ maxSteps: 8, toolTimeoutMs: 60_000 })
  expect(file.agents.m).toMatchObject({ path: './agents/report.ts' })
})
