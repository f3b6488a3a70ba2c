import { describe, expect, test } from 'vitest'
import { isAgentInput, readAgentInput } from './agent-input.ts'

const user = { id: 'u1', role: 'user', content: 'hello' }
const input = { threadId: 't', runId: 'r', messages: [user], tools: [], context: [] }
const read = (changes: object) => {
  const outcome = readAgentInput({ ...input, ...changes })
  if (outcome.kind === 'invalid') throw new Error(JSON.stringify(outcome.errors))
  return outcome.input
}
const errorsOf = (body: unknown) => {
  const outcome = readAgentInput(body)
  return outcome.kind === 'invalid' ? outcome.errors : undefined
}

test('AG-UI’s body is told from ours by thread, run and messages', () => {
  expect(isAgentInput(input)).toBe(true)
  expect(isAgentInput({ message: 'x', clientTurnId: 'r' })).toBe(false)
  expect(isAgentInput(null)).toBe(false)
})

describe('what is new', () => {
  test('is the last user message, with its id', () => {
    const messages = [
      user,
      { id: 'a1', role: 'assistant', content: 'hi' },
      { id: 'u2', role: 'user', content: [{ type: 'text', text: 'and now?', extra: 1 }] },
    ]
    expect(read({ messages })).toMatchObject({
      message: { id: 'u2', content: [{ type: 'text', text: 'and now?' }] },
      toolResults: [],
      resume: [],
    })
  })

  test('does not depend on what a client made of its history', () => {
    const messages = [{ role: 'thinking', broken: true }, 7, user]
    expect(read({ messages }).message?.id).toBe('u1')
  })

  test('is still that message when a client comes back with the answer behind it', () => {
    const messages = [user, { id: 'a1', role: 'assistant', content: 'hi' }]
    expect(read({ messages }).message?.id).toBe('u1')
  })

  const tool = (id: string) => ({ id, role: 'tool', toolCallId: `c-${id}`, content: 'done' })
  const result = (id: string) => ({ messageId: id, toolCallId: `c-${id}`, content: 'done' })

  test('are the tool results at the end, and nothing that was said before them', () => {
    const messages = [user, { id: 'a', role: 'assistant' }, tool('x'), tool('y')]
    expect(read({ messages })).toMatchObject({
      message: null,
      toolResults: [result('x'), result('y')],
    })
    expect(read({ messages: [tool('x')] })).toMatchObject({ message: null })
  })

  test('are the tool results right before a user message, and that message', () => {
    const messages = [tool('old'), user, tool('x'), { ...user, id: 'u2' }]
    expect(read({ messages })).toMatchObject({
      message: { id: 'u2' },
      toolResults: [result('x')],
    })
  })

  test('is what a client resumes with, and not the question that stands behind it', () => {
    const resume = [{ interruptId: 'i', status: 'resolved', payload: { a: null } }]
    const asked = [user, { id: 'a', role: 'assistant', content: 'may I?' }]
    expect(read({ resume, messages: asked })).toMatchObject({ message: null, resume })
    expect(read({ resume, messages: [] })).toMatchObject({ message: null, resume })
    expect(read({ resume, messages: [user] }).message?.id).toBe('u1')
  })
})

test('optional fields that are null count as left out, payloads stay', () => {
  const given = read({
    parentRunId: null,
    state: { a: null },
    forwardedProps: { b: null },
    messages: [{ ...user, name: null }],
  })
  expect(given).toMatchObject({ state: { a: null }, forwardedProps: { b: null } })
  expect(read({ state: null, tools: null, context: null, resume: null })).toMatchObject({
    state: undefined,
    tools: [],
    context: [],
  })
})

test.each([
  [{}, 'threadId'],
  [{ ...input, runId: undefined }, 'runId'],
  [{ ...input, threadId: '' }, 'threadId'],
  [{ ...input, runId: 'r'.repeat(129) }, 'runId'],
  [{ ...input, messages: [] }, 'messages'],
  [{ ...input, messages: 'x' }, 'messages'],
  [{ ...input, messages: [{ id: 'a', role: 'assistant', content: 'x' }] }, 'messages'],
  [{ ...input, messages: [{ ...user, content: '' }] }, 'messages'],
  [{ ...input, messages: [{ ...user, id: '' }] }, 'messages'],
  [{ ...input, forwardedProps: 'x' }, 'forwardedProps'],
  [{ ...input, tools: [{ name: 1 }] }, 'tools'],
])('%j is refused with the path %s', (body, path) => {
  expect(errorsOf(body)?.[0]?.path.split('.')[0]).toBe(path)
})
