import { describe, expect, test } from 'vitest'
import { answersTo, type Given, type Pending } from './answers.ts'

const NOW = Date.parse('2030-01-01T00:00:00Z')
const call = (toolCallId: string) => ({ toolCallId, name: 'tool', messageId: 'm' })
const interrupt = (id: string, more: object = {}) => ({ id, reason: 'confirmation', ...more })
const pending = (interrupts: Pending['interrupts'], ...calls: string[]): Pending => ({
  interrupts,
  calls: calls.map(call),
})
const resolved = (interruptId: string) => ({ interruptId, status: 'resolved' as const })
const cancelled = (interruptId: string) => ({ interruptId, status: 'cancelled' as const })
const result = (toolCallId: string) => ({ toolCallId, content: 'done' })

function decide(left: Pending, given: Partial<Given>) {
  let minted = 0
  const mintId = () => {
    minted += 1
    return `minted${minted}`
  }
  const whole = { resume: [], toolResults: [], says: false, ...given }
  return answersTo(left, whole, { atMs: NOW, mintId })
}

function accepted(left: Pending, given: Partial<Given>) {
  const outcome = decide(left, given)
  if (outcome.kind !== 'answers') throw new Error(JSON.stringify(outcome))
  return outcome.answers
}

const contents = (messages: readonly object[]) =>
  messages.map((message) => 'content' in message && message.content)

describe('a plain message', () => {
  test('cancels every interrupt and answers every call, so that nothing is left open', () => {
    const left = pending([interrupt('i', { toolCallId: 'a' }), interrupt('j')], 'a', 'b')
    expect(accepted(left, { says: true })).toEqual({
      resume: [cancelled('i'), cancelled('j')],
      results: [
        { id: 'minted1', role: 'tool', toolCallId: 'a', content: 'interrupted' },
        { id: 'minted2', role: 'tool', toolCallId: 'b', content: 'interrupted' },
      ],
      openCalls: [],
    })
  })

  test('with some results answers those and interrupts the other calls', () => {
    const answers = accepted(pending([], 'a', 'b'), { says: true, toolResults: [result('b')] })
    expect(contents(answers.results)).toEqual(['interrupted', 'done'])
  })

  test('where nothing is pending changes nothing', () => {
    expect(accepted(pending([]), { says: true })).toEqual({
      resume: [],
      results: [],
      openCalls: [],
    })
  })
})

describe('a resume', () => {
  const left = pending([interrupt('i', { toolCallId: 'a' }), interrupt('j')], 'a', 'b')

  test('leaves the calls of what was resolved to the agent', () => {
    const answers = accepted(left, { resume: [resolved('j'), resolved('i')] })
    expect(answers.resume).toEqual([resolved('i'), resolved('j')])
    expect(answers.openCalls.map(({ toolCallId }) => toolCallId)).toEqual(['a', 'b'])
    expect(answers.results).toEqual([])
  })

  test('answers the call of what was cancelled', () => {
    const answers = accepted(left, { resume: [cancelled('i'), resolved('j')] })
    expect(answers.openCalls.map(({ toolCallId }) => toolCallId)).toEqual(['b'])
    expect(contents(answers.results)).toEqual(['interrupted'])
  })

  test('that cancels everything leaves the agent nothing', () => {
    const answers = accepted(left, { resume: [cancelled('i'), cancelled('j')] })
    expect(answers.openCalls).toEqual([])
    expect(answers.results).toHaveLength(2)
  })

  test.each([
    ['one of two', [resolved('i')], ['j']],
    ['one twice', [resolved('i'), resolved('j'), cancelled('i')], ['i']],
  ])('that answers %s is incomplete', (_what, resume, missing) => {
    expect(decide(left, { resume })).toEqual({ kind: 'incomplete', missing })
  })

  test('of what is not pending is closed, whatever else it answers', () => {
    const resume = [resolved('i'), resolved('j'), resolved('old')]
    expect(decide(left, { resume })).toEqual({ kind: 'closed', ids: ['old'] })
    expect(decide(pending([]), { resume: [cancelled('i')] }).kind).toBe('closed')
  })

  test('can only cancel what has expired, and need not mention it', () => {
    const old = interrupt('old', { expiresAt: '2030-01-01T00:00:00Z', toolCallId: 'a' })
    const some = pending([old, interrupt('new', { expiresAt: '2030-01-01T00:00:01Z' })], 'a')
    expect(decide(some, { resume: [resolved('old'), resolved('new')] }).kind).toBe('closed')
    for (const resume of [[resolved('new')], [cancelled('old'), resolved('new')]]) {
      const answers = accepted(some, { resume })
      expect(answers.resume).toEqual([cancelled('old'), resolved('new')])
      expect(contents(answers.results)).toEqual(['interrupted'])
    }
  })
})

describe('tool results', () => {
  test('answer what the front end was asked for, under the ids that they bring', () => {
    const toolResults = [{ ...result('a'), messageId: 'mine', error: 'no' }]
    expect(accepted(pending([], 'a'), { toolResults }).results).toEqual([
      { id: 'mine', role: 'tool', toolCallId: 'a', content: 'done', error: 'no' },
    ])
  })

  test('must answer every call, each once, and none that is not pending', () => {
    const left = pending([], 'a', 'b')
    expect(decide(left, { toolResults: [result('a')] })).toEqual({
      kind: 'incomplete',
      missing: ['b'],
    })
    const twice = [result('a'), result('b'), result('b')]
    expect(decide(left, { toolResults: twice })).toEqual({ kind: 'incomplete', missing: ['b'] })
    const foreign = [result('a'), result('b'), result('x')]
    expect(decide(left, { toolResults: foreign })).toEqual({ kind: 'closed', ids: ['x'] })
  })

  test('from a client’s whole history count as far as they are pending', () => {
    const toolResults = [result('old'), result('a')]
    const left = pending([], 'a')
    expect(accepted(left, { toolResults, ignoreSettled: true }).results).toHaveLength(1)
    const none = { toolResults: [result('old')], ignoreSettled: true }
    expect(decide(left, none)).toEqual({ kind: 'closed', ids: [] })
    expect(accepted(left, { ...none, says: true }).results).toHaveLength(1)
  })

  test('without the answer to an interrupt are incomplete', () => {
    const left = pending([interrupt('i')], 'a')
    expect(decide(left, { toolResults: [result('a')] })).toEqual({
      kind: 'incomplete',
      missing: ['i'],
    })
  })
})
