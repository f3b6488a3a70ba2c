import { describe, expect, test } from 'vitest'
import { isLoopback, parseConfig } from './config.ts'

const DATABASE = { DATABASE_URL: 'postgres://holdfast@localhost/holdfast' }

test('without anything but a database it listens on loopback port 3000 in open mode', () => {
  const config = parseConfig(DATABASE)
  expect(config).toMatchObject({
    host: '127.0.0.1',
    port: 3000,
    directUrl: DATABASE.DATABASE_URL,
    logLevel: 'info',
    auth: { mode: 'open' },
    corsOrigins: [],
    notifyAllow: [],
  })
})

test('an empty variable counts as not set', () => {
  expect(parseConfig({ ...DATABASE, PORT: '', AUTH_JWT_SECRET: '' })).toMatchObject({
    port: 3000,
    auth: { mode: 'open' },
  })
})

test('lists are comma-separated and trimmed', () => {
  const config = parseConfig({
    ...DATABASE,
    CORS_ORIGINS: 'https://a.example, http://localhost:5173',
    NOTIFY_ALLOW: 'Hooks.example, other.example:8443',
  })
  expect(config.corsOrigins).toEqual(['https://a.example', 'http://localhost:5173'])
  expect(config.notifyAllow).toEqual(['hooks.example', 'other.example:8443'])
})

test.each([
  [{}, 'DATABASE_URL must be a postgres:// URL'],
  [{ DATABASE_URL: 'mysql://x' }, 'DATABASE_URL must be a postgres:// URL'],
  [{ ...DATABASE, DATABASE_DIRECT_URL: 'x' }, 'DATABASE_DIRECT_URL must be a postgres:// URL'],
  [{ ...DATABASE, PORT: 'abc' }, 'PORT must be a whole number from 0 to 65535'],
  [{ ...DATABASE, PORT: '65536' }, 'PORT must be a whole number from 0 to 65535'],
  [{ ...DATABASE, PORT: '-1' }, 'PORT must be a whole number from 0 to 65535'],
  [{ ...DATABASE, LOG_LEVEL: 'loud' }, 'LOG_LEVEL must be trace, debug,'],
  [{ ...DATABASE, AUTH_OPEN: 'yes' }, 'AUTH_OPEN must be true or false'],
  [{ ...DATABASE, AUTH_JWKS_URL: 'file:///x' }, 'AUTH_JWKS_URL must be an http(s) URL'],
  [{ ...DATABASE, AUTH_COOKIE: 'a b' }, 'AUTH_COOKIE must be the name of a cookie'],
  [{ ...DATABASE, CORS_ORIGINS: 'https://a.example/path' }, 'CORS_ORIGINS must be origins'],
  [{ ...DATABASE, CORS_ORIGINS: '*' }, 'CORS_ORIGINS must be origins'],
  [{ ...DATABASE, NOTIFY_ALLOW: 'https://x' }, 'NOTIFY_ALLOW must be host names'],
  [{ ...DATABASE, WEBHOOK_URLS: 'ftp://x' }, 'WEBHOOK_URLS must be http(s) URLs'],
  [{ ...DATABASE, WEBHOOK_URLS: 'https://x' }, 'WEBHOOK_SECRET must be set'],
  [{ ...DATABASE, WEBHOOK_SECRET: 'abc' }, 'WEBHOOK_SECRET must be whsec_'],
  [
    { ...DATABASE, AUTH_JWT_SECRET: 's', AUTH_JWKS_URL: 'https://x' },
    'AUTH_JWKS_URL must be left out',
  ],
])('%j is refused with one line that names the variable', (environment, line) => {
  expect(() => parseConfig(environment)).toThrow(line)
  expect(() => parseConfig(environment)).not.toThrow('\n')
})

test('a refusal never repeats the value, which may be a secret', () => {
  expect(() => parseConfig({ ...DATABASE, WEBHOOK_SECRET: 'hunter2' })).not.toThrow('hunter2')
})

describe('open mode', () => {
  test('stays on loopback unless it is asked for', () => {
    expect(() => parseConfig({ ...DATABASE, HOST: '0.0.0.0' })).toThrow('HOST must be a loopback')
    expect(parseConfig({ ...DATABASE, HOST: '0.0.0.0', AUTH_OPEN: 'true' }).host).toBe('0.0.0.0')
    expect(parseConfig({ ...DATABASE, HOST: '0.0.0.0', AUTH_JWT_SECRET: 's' }).host).toBe('0.0.0.0')
  })

  test.each([
    ['127.0.0.1', true],
    ['127.8.9.10', true],
    ['localhost', true],
    ['::1', true],
    ['[::1]', true],
    ['0.0.0.0', false],
    ['127.0.0.1.example.com', false],
    ['10.0.0.1', false],
  ])('%s is loopback: %s', (host, loopback) => {
    expect(isLoopback(host)).toBe(loopback)
  })
})
