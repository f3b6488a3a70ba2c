import { expect, test } from 'vitest'
import { parseConfig } from './config.ts'

test('nothing set means the embedded database, one runner and port 3000', () => {
  expect(parseConfig({})).toMatchObject({
    kind: 'ok',
    config: { port: 3000, host: '127.0.0.1', databaseUrl: undefined, runners: 1, drainMs: 30_000 },
  })
})

test('an empty variable counts as not set', () => {
  expect(parseConfig({ PORT: '', DATABASE_URL: '' })).toEqual(parseConfig({}))
})

test.each([
  ['PORT', '65536'],
  ['PORT', '3000 '],
  ['HOST', 'http://127.0.0.1'],
  ['DATABASE_URL', 'mysql://secret'],
  ['HOLDFAST_RUNNERS', '-1'],
  ['HOLDFAST_RUNNERS', '1.5'],
  ['DRAIN_SECONDS', 'soon'],
  ['RUNNER_METRICS_PORT', 'x'],
  ['LOG_LEVEL', 'loud'],
])('%s=%s is refused with one line that names the variable and not the value', (name, value) => {
  const parsed = parseConfig({ [name]: value })
  expect(parsed.kind).toBe('invalid')
  const message = parsed.kind === 'invalid' ? parsed.message : ''
  expect(message).toMatch(new RegExp(`^${name} must be .+$`))
  expect(message).not.toContain(value)
})
