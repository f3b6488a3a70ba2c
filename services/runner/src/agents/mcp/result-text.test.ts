import { expect, test } from 'vitest'
import { RESULT_CHARS_MAX } from './mcp-limits.ts'
import { resultText } from './result-text.ts'

test('texts stay, and what is no text is named', () => {
  const content = [
    { type: 'text' as const, text: 'one' },
    { type: 'image' as const, data: 'AAAA', mimeType: 'image/png' },
    { type: 'resource' as const, resource: { uri: 'file:///a', text: 'two' } },
    { type: 'resource_link' as const, uri: 'file:///b', name: 'b' },
  ]
  expect(resultText({ content })).toBe(
    'one\n[image image/png, 4 characters of base64]\ntwo\n[b](file:///b)',
  )
})

test('what is only structured is given as JSON, and nothing is said to be nothing', () => {
  expect(resultText({ content: [], structuredContent: { a: 1 } })).toBe('{"a":1}')
  expect(resultText({ content: [] })).toBe('Done.')
  expect(resultText({ content: [], isError: true })).toBe('Error: the tool failed.')
})

test('a huge result is cut between characters, and says so', () => {
  const text = resultText({
    content: [{ type: 'text', text: `x${'😀'.repeat(RESULT_CHARS_MAX)}` }],
  })
  expect(text.isWellFormed()).toBe(true)
  expect(text.length).toBeLessThan(RESULT_CHARS_MAX + 100)
  expect(text).toMatch(/\[200002 more characters were left out\.\]$/)
})
