import fc from 'fast-check'
import { expect, test } from 'vitest'
import { isTerminal, type RunCommand, RunState, TRANSITIONS } from './run-state.ts'

const COMMANDS = Object.keys(TRANSITIONS.queued) as RunCommand[]
const commands = fc.array(fc.constantFrom(...COMMANDS), { maxLength: 30 })

/** Where a run is after commands of which the refused ones change nothing. */
function after(given: readonly RunCommand[]): RunState[] {
  const states: RunState[] = ['queued']
  for (const command of given) {
    const state = states.at(-1) ?? 'queued'
    states.push(TRANSITIONS[state][command] ?? state)
  }
  return states
}

test('whatever is commanded, a run that has ended does not change any more', () => {
  fc.assert(
    fc.property(commands, (given) => {
      const states = after(given)
      const endedAt = states.findIndex(isTerminal)
      if (endedAt >= 0) expect(new Set(states.slice(endedAt)).size).toBe(1)
    }),
    { seed: 17, numRuns: 500 },
  )
})

test('whatever was commanded, a run that has not ended can still be ended in every way that its state allows', () => {
  fc.assert(
    fc.property(commands, (given) => {
      const state = after(given).at(-1) ?? 'queued'
      if (isTerminal(state)) return
      expect([TRANSITIONS[state].fail, TRANSITIONS[state].stop]).toEqual(['failed', 'stopped'])
      // A success needs somebody who executed it.
      expect(TRANSITIONS[state].succeed).toBe(state === 'running' ? 'succeeded' : null)
    }),
    { seed: 18, numRuns: 500 },
  )
})

test('only a claim and a takeover lead to running, so only they begin an attempt', () => {
  for (const state of RunState.options) {
    for (const command of COMMANDS) {
      const leadsThere = TRANSITIONS[state][command] === 'running'
      const begins =
        (state === 'queued' && command === 'claim') ||
        (state === 'running' && command === 'take_over')
      expect([state, command, leadsThere]).toEqual([state, command, begins])
    }
  }
})
