import { expect, test } from 'vitest'
import { type AgentDefinition, defineAgent, isDefinedAgent } from './index.ts'

test('an agent is recognised by what made it, not by its shape', () => {
  const agent = defineAgent({ run: () => 'done' })
  expect(isDefinedAgent(agent)).toBe(true)
  expect(agent.resumes).toBe(false)
  for (const other of [{ run: () => 'done' }, null, 'agent', { ...agent, run: 1 }.run]) {
    expect(isDefinedAgent(other)).toBe(false)
  }
})

test('a definition that is wrong is refused in words', () => {
  const refused = [
    [{}, 'run must be a function'],
    [{ run: () => 1, resumes: 'yes' }, 'resumes must be a boolean'],
    [{ run: () => 1, resume: true }, 'resume is not a known key'],
  ] as const
  for (const [definition, reason] of refused) {
    const define = () => defineAgent(definition as unknown as AgentDefinition)
    expect(define).toThrow(`defineAgent: ${reason}`)
  }
})
