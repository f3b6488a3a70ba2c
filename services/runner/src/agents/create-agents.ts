import type { AgentSpec, AgentsFile } from '@holdfast/protocol'
import { asError, HoldfastError } from '@holdfast/std'
import type { Logger } from 'pino'
import { createAgUiAgent } from './ag-ui/ag-ui-agent.ts'
import type { Agent } from './agent.ts'
import { createDemoAgent } from './demo.ts'
import { createModuleAgent } from './module/module-agent.ts'
import type { Modules } from './module/modules.ts'
import type { Strays } from './module/strays.ts'
import { createOpenAiAgent } from './openai/openai-agent.ts'
import type { Outbound } from './outbound.ts'

export type AgentDeps = { outbound: Outbound; modules: Modules; strays: Strays; log: Logger }

/**
 * The agents of the file by name. Modules are loaded; nothing is resolved or connected here.
 * @throws HoldfastError kind `invalid`, code `unusable_agent`, naming each agent that cannot be used and why
 */
export async function createAgents(file: AgentsFile, deps: AgentDeps): Promise<Map<string, Agent>> {
  const agents = new Map<string, Agent>()
  const refused: string[] = []
  for (const [name, spec] of Object.entries(file.agents)) {
    try {
      agents.set(name, await createAgent(spec, { ...deps, log: deps.log.child({ agent: name }) }))
    } catch (error) {
      refused.push(`agent ${name}: ${asError(error).message}`)
    }
  }
  if (refused.length === 0) return agents
  throw new HoldfastError('invalid', 'unusable_agent', refused.join('; '))
}

async function createAgent(spec: AgentSpec, deps: AgentDeps): Promise<Agent> {
  switch (spec.type) {
    case 'demo':
      return createDemoAgent()
    case 'ag-ui':
      return createAgUiAgent(spec, deps)
    case 'openai':
      return createOpenAiAgent(spec, deps)
    case 'module':
      return createModuleAgent(await deps.modules.load(spec.path), deps.strays)
  }
}
