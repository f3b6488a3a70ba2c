import type { AgentsFile } from '@holdfast/protocol'
import { HoldfastError } from '@holdfast/std'
import { createAgUiAgent } from './ag-ui/ag-ui-agent.ts'
import type { Agent } from './agent.ts'
import { createDemoAgent } from './demo.ts'
import { createOpenAiAgent } from './openai/openai-agent.ts'
import type { Outbound } from './outbound.ts'

export type AgentDeps = { outbound: Outbound }

/**
 * The agents of the file by name. Nothing is resolved or connected here.
 * @throws HoldfastError kind `invalid`, code `unsupported_agent`, naming each agent whose type
 *   this version does not have
 */
export function createAgents(file: AgentsFile, deps: AgentDeps): Map<string, Agent> {
  const agents = new Map<string, Agent>()
  const refused: string[] = []
  for (const [name, spec] of Object.entries(file.agents)) {
    if (spec.type === 'demo') agents.set(name, createDemoAgent())
    else if (spec.type === 'ag-ui') agents.set(name, createAgUiAgent(spec, deps))
    else if (spec.type === 'openai') agents.set(name, createOpenAiAgent(spec, deps))
    else refused.push(`agent ${name}: type ${spec.type} is not available in this version`)
  }
  if (refused.length === 0) return agents
  throw new HoldfastError('invalid', 'unsupported_agent', refused.join('; '))
}
