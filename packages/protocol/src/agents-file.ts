import { HoldfastError } from '@holdfast/std'
import * as z from 'zod'

const DEADLINE_MS_MAX = 30 * 86_400_000
const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
const HEADER_VALUE = /^[\t\x20-\x7e]*$/
const AGENT_NAME = /^[a-zA-Z0-9._-]{1,64}$/

/** Headers that the request itself needs; a configured one would break or forge them. */
const OWN_HEADERS = new Set([
  'accept',
  'accept-encoding',
  'connection',
  'content-length',
  'content-type',
  'host',
  'idempotency-key',
  'transfer-encoding',
])

const waitMs = (fallback: number) => z.int().min(1).max(DEADLINE_MS_MAX).default(fallback)

const common = {
  /** Attempts of a run, the first one included. */
  maxAttempts: z.int().min(1).max(100).default(3),
  /** What becomes of a run whose runner was lost. */
  onLost: z.enum(['restart', 'fail']).default('restart'),
  /** What a lost attempt may have done outside. */
  effects: z.enum(['none', 'idempotent', 'unknown']).default('unknown'),
  /** From the first claim, over all attempts. */
  deadlineMs: waitMs(600_000),
  /** From acceptance, not while parked. */
  maxQueueMs: waitMs(86_400_000),
  /** No byte. */
  idleTimeoutMs: waitMs(120_000),
  /** No progress of the model. */
  progressTimeoutMs: waitMs(120_000),
  connectTimeoutMs: waitMs(10_000),
  /** Whether interrupted answers are part of what a model sees. */
  history: z.enum(['all', 'complete']).default('all'),
}

const httpUrl = z.string().refine(isHttpUrl, 'expected an http or https URL without credentials')

const headers = z
  .record(
    z.string().regex(HEADER_NAME, 'expected a header name'),
    z.string().regex(HEADER_VALUE, 'expected printable ASCII'),
  )
  .refine((given) => !Object.keys(given).some((name) => OWN_HEADERS.has(name.toLowerCase())), {
    message: `these are set by the request itself: ${[...OWN_HEADERS].join(', ')}`,
  })
  .default({})

/** What the agent itself decides in each request. */
const OWN_FIELDS = new Set(['messages', 'model', 'n', 'stream', 'tools'])
const OWN_FIELDS_MESSAGE = `these are set by the request itself: ${[...OWN_FIELDS].join(', ')}`
const isForParameters = (given: object) => !Object.keys(given).some((name) => OWN_FIELDS.has(name))

const DemoAgent = z.strictObject({
  type: z.literal('demo'),
  ...common,
  // It reaches nothing outside, so a lost attempt may always be started again.
  effects: z.enum(['none', 'idempotent', 'unknown']).default('none'),
})

const AgUiAgent = z.strictObject({ type: z.literal('ag-ui'), ...common, url: httpUrl, headers })

const McpServer = z.union([
  z.strictObject({
    command: z.string().min(1),
    args: z.array(z.string()).default([]),
    env: z.record(z.string(), z.string()).default({}),
  }),
  z.strictObject({ url: httpUrl, headers }),
])

const OpenAiAgent = z.strictObject({
  type: z.literal('openai'),
  ...common,
  baseUrl: httpUrl,
  model: z.string().min(1),
  apiKey: z.string().optional(),
  /** Besides the authorization that `apiKey` makes. */
  headers,
  /** More of the request's body, as the server wants it; null leaves a field out. */
  parameters: z
    .record(z.string(), z.json())
    .refine(isForParameters, OWN_FIELDS_MESSAGE)
    .default({}),
  system: z.string().optional(),
  /** About how much of a conversation the model gets: the oldest turns are left out. All of it by default. */
  contextTokens: z.int().min(1).optional(),
  mcpServers: z.record(z.string().regex(AGENT_NAME), McpServer).default({}),
  maxSteps: z.int().min(1).max(1000).default(8),
  toolTimeoutMs: waitMs(60_000),
  tools: z
    .record(
      z.string(),
      z.strictObject({
        onInDoubt: z.enum(['retry', 'stop', 'ask']).optional(),
        approval: z.boolean().optional(),
      }),
    )
    .default({}),
})

const ModuleAgent = z.strictObject({
  type: z.literal('module'),
  ...common,
  path: z.string().min(1),
})

const AgentSpec = z.discriminatedUnion('type', [DemoAgent, AgUiAgent, OpenAiAgent, ModuleAgent])

const AgentsFile = z
  .strictObject({
    default: z.string().optional(),
    agents: z.record(
      z.string().regex(AGENT_NAME, 'expected 1 to 64 of a-z A-Z 0-9 . _ -'),
      AgentSpec,
    ),
  })
  .superRefine((file, context) => {
    if (Object.keys(file.agents).length === 0) {
      context.addIssue({ code: 'custom', path: ['agents'], message: 'expected at least one agent' })
    }
    if (file.default !== undefined && !Object.hasOwn(file.agents, file.default)) {
      context.addIssue({
        code: 'custom',
        path: ['default'],
        message: 'names no agent of this file',
      })
    }
  })

export type AgentSpec = z.infer<typeof AgentSpec>
export type AgUiAgentSpec = z.infer<typeof AgUiAgent>
export type OpenAiAgentSpec = z.infer<typeof OpenAiAgent>
export type McpServerSpec = z.infer<typeof McpServer>

/** The agents that runners execute: which kinds, where they are and under which limits. */
export type AgentsFile = z.infer<typeof AgentsFile>

/** What a run copies from its agent when it is accepted. */
export type AgentLimits = Pick<AgentSpec, keyof typeof common>

/** What a runner offers when no agents file is configured. */
export const BUILT_IN_AGENTS: AgentsFile = AgentsFile.parse({ agents: { demo: { type: 'demo' } } })

/**
 * Reads an agents file: `${VAR}` in its strings is taken from `env`, defaults are filled in.
 * @throws HoldfastError kind `invalid`, code `invalid_agents_file`, whose message and
 *   `details.errors` `{path, message}[]` name every problem
 */
export function parseAgentsFile(
  json: unknown,
  env: Readonly<Record<string, string | undefined>>,
): AgentsFile {
  const problems: Problem[] = []
  const filled = fillVariables(json, env, [], problems)
  const parsed = AgentsFile.safeParse(filled)
  if (parsed.success && problems.length === 0) return parsed.data
  // A string whose variable is missing is reported once, not also as a bad URL.
  const known = new Set(problems.map((problem) => problem.path))
  const found = parsed.success ? [] : parsed.error.issues.flatMap(problemsOf)
  const errors = [...problems, ...found.filter((problem) => !known.has(problem.path))]
  throw new HoldfastError(
    'invalid',
    'invalid_agents_file',
    `HOLDFAST_AGENTS: ${errors.map((error) => `${error.path}: ${error.message}`).join('; ')}`,
    { details: { errors } },
  )
}

/** The agent of a request that names none: the given default, else the only or first one. */
export function defaultAgent(file: AgentsFile): string {
  const name = file.default ?? Object.keys(file.agents)[0]
  if (name === undefined)
    throw new HoldfastError('invalid', 'invalid_agents_file', 'HOLDFAST_AGENTS: no agents')
  return name
}

/** The limits alone, as they are recorded and copied into runs. */
export function agentLimits(spec: AgentSpec): AgentLimits {
  return {
    maxAttempts: spec.maxAttempts,
    onLost: spec.onLost,
    effects: spec.effects,
    deadlineMs: spec.deadlineMs,
    maxQueueMs: spec.maxQueueMs,
    idleTimeoutMs: spec.idleTimeoutMs,
    progressTimeoutMs: spec.progressTimeoutMs,
    connectTimeoutMs: spec.connectTimeoutMs,
    history: spec.history,
  }
}

type Problem = { path: string; message: string }
type Path = readonly PropertyKey[]

function fillVariables(
  value: unknown,
  env: Readonly<Record<string, string | undefined>>,
  path: Path,
  problems: Problem[],
): unknown {
  if (typeof value === 'string') {
    return value.replaceAll(/\$\{([A-Za-z_][A-Za-z0-9_]*)\}/g, (written, name: string) => {
      const filled = Object.hasOwn(env, name) ? env[name] : undefined
      if (filled !== undefined) return filled
      problems.push({ path: pathText(path), message: `environment variable ${name} is not set` })
      return written
    })
  }
  if (Array.isArray(value)) {
    return value.map((item, index) => fillVariables(item, env, [...path, index], problems))
  }
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      key,
      fillVariables(inner, env, [...path, key], problems),
    ]),
  )
}

function problemsOf(issue: z.core.$ZodIssue): Problem[] {
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      path: pathText([...issue.path, key]),
      message: 'is not a known key',
    }))
  }
  if (issue.code === 'invalid_key') {
    const reason = issue.issues[0]?.message ?? issue.message
    return [{ path: pathText(issue.path), message: reason }]
  }
  return [{ path: pathText(issue.path), message: issue.message }]
}

function pathText(path: Path): string {
  return path.length === 0 ? '(file)' : path.map(String).join('.')
}

function isHttpUrl(text: string): boolean {
  if (!URL.canParse(text)) return false
  const url = new URL(text)
  const http = url.protocol === 'http:' || url.protocol === 'https:'
  return http && url.username === '' && url.password === ''
}
