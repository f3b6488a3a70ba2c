import type { OpenAiAgentSpec, Tool } from '@holdfast/protocol'
import { AgentFailure, type AgentRun } from '../agent.ts'
import { McpFailure } from '../mcp/mcp-failure.ts'
import type { McpTool } from '../mcp/mcp-session.ts'
import type { SessionPool } from '../mcp/session-pool.ts'
import { offeredNames } from '../mcp/tool-names.ts'
import type { ChatTool } from './chat-request.ts'

/** A tool of an MCP server, and how the operator wants its calls to be treated. */
export type ServerTool = {
  readonly server: string
  readonly tool: McpTool
  readonly policy: 'retry' | 'ask' | 'stop'
  readonly needsApproval: boolean
}

/** What the model may call in this turn. */
export type Toolbox = {
  readonly offered: readonly ChatTool[]
  readonly serverTools: ReadonlyMap<string, ServerTool>
  /** Its calls are left for the front end to answer: the run ends with them pending. */
  isFrontEnd(name: string): boolean
}

/**
 * Asks all servers for their tools. A model that lacks some of its tools without knowing why makes things up, so a
 * server that cannot be asked fails the attempt.
 * @throws AgentFailure
 */
export async function openToolbox(
  spec: OpenAiAgentSpec,
  run: AgentRun,
  sessions: SessionPool,
): Promise<Toolbox> {
  const servers = Object.keys(spec.mcpServers)
  const lists = await Promise.all(servers.map((server) => toolsOf(server, run, sessions)))
  const names = offeredNames(
    lists.flat().map(({ server, tool }) => ({ server, tool: tool.name, value: { server, tool } })),
  )
  const serverTools = new Map(
    [...names].map(([name, found]) => [name, { ...found, ...treatment(spec, name, found.tool) }]),
  )
  // Whoever starts a run may add tools to those of the operator, but not stand in for one.
  const frontEnd = run.tools.filter(({ name }) => !serverTools.has(name))
  const frontEndNames = new Set(frontEnd.map(({ name }) => name))
  return {
    offered: [
      ...[...serverTools].map(([name, { tool }]) =>
        chatTool(name, tool.description, tool.inputSchema),
      ),
      ...frontEnd.map((tool: Tool) => chatTool(tool.name, tool.description, tool.parameters)),
    ],
    serverTools,
    isFrontEnd: (name) => frontEndNames.has(name),
  }
}

async function toolsOf(server: string, run: AgentRun, sessions: SessionPool) {
  try {
    const { signal } = run
    const tools = await sessions.lend(server, run, signal, (session) => session.tools(signal))
    return tools.map((tool) => ({ server, tool }))
  } catch (error) {
    run.signal.throwIfAborted()
    throw new AgentFailure('upstream_error', `the MCP server ${server} does not tell its tools`, {
      cause: error,
      retryable: error instanceof McpFailure && error.kind !== 'answered',
    })
  }
}

/** What a lost call may be repeated for: its server says that it does no harm, or the operator does. */
function treatment({ tools }: OpenAiAgentSpec, name: string, { annotations }: McpTool) {
  const { onInDoubt, approval = false } = tools[name] ?? {}
  const isHarmless = annotations?.readOnlyHint === true || annotations?.idempotentHint === true
  return { policy: onInDoubt ?? (isHarmless ? 'retry' : 'stop'), needsApproval: approval } as const
}

function chatTool(name: string, description: string | undefined, parameters: unknown): ChatTool {
  return {
    type: 'function',
    function: {
      name,
      ...(description && { description }),
      parameters: parameters ?? NO_PARAMETERS,
    },
  }
}

const NO_PARAMETERS = { type: 'object', properties: {} }
