import type { Run } from './run.ts'

/** A name that is the same in every copy of this package: the agent's and the runner's may differ. */
const AGENT = Symbol.for('holdfast.agent')

export type AgentDefinition = {
  /**
   * The whole turn. It answers with `run.text`, `run.tool` and the like; what it returns is the
   * run's `result` (JSON, or nothing). What it throws ends the run with `agent_error`; the text of
   * the error stays in the service's log.
   */
  run(run: Run): unknown
  /**
   * It goes on from `run.saved` when that is current, and what was said up to the checkpoint is
   * kept. Without it every attempt says everything again; steps are done once either way.
   */
  readonly resumes?: boolean
}

export type DefinedAgent = Readonly<AgentDefinition> & { readonly [AGENT]: 1 }

/**
 * Makes an agent for an entry of type `module` in the agents file: the default export of its file.
 * @throws TypeError that says what is wrong with the definition
 */
export function defineAgent(definition: AgentDefinition): DefinedAgent {
  const { run, resumes = false, ...unknown } = definition
  if (typeof run !== 'function') throw new TypeError('defineAgent: run must be a function')
  if (typeof resumes !== 'boolean') throw new TypeError('defineAgent: resumes must be a boolean')
  const [name] = Object.keys(unknown)
  if (name !== undefined) throw new TypeError(`defineAgent: ${name} is not a known key`)
  // Called on the definition, which may keep things of its own in `this`.
  return Object.freeze({ run: (given: Run) => definition.run(given), resumes, [AGENT]: 1 as const })
}

/** Whether it was made by `defineAgent`, of this or another copy of the package. */
export function isDefinedAgent(value: unknown): value is DefinedAgent {
  return typeof value === 'object' && value !== null && AGENT in value && value[AGENT] === 1
}
