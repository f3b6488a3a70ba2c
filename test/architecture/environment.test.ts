import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { ROOT, sourceFiles } from './source-files.ts'

/** Not for users: set where the checks run. */
const INTERNAL = new Set(['HOLDFAST_REQUIRE_CONTAINERS', 'HOLDFAST_REQUIRE_BROWSER'])
const PUBLIC_NAME =
  /\b(?:HOLDFAST_|RUNNER_|AUTH_|WEBHOOK_|DATABASE_|CORS_|NOTIFY_|OUTBOUND_|LEASE_|DRAIN_|LOG_|ARTIFACTS_|AWS_)[A-Z0-9_]*[A-Z0-9]\b/g

const readme = await readFile(join(ROOT, 'README.md'), 'utf8')
const table = readme.split('\n').filter((row) => row.startsWith('| `'))
const documented = new Set(
  table.flatMap((row) =>
    [...(row.split('|')[1] ?? '').matchAll(/`([A-Z][A-Z0-9_]+)`/g)].map(([, name]) => name ?? ''),
  ),
)
const product = (await sourceFiles()).filter(
  ({ workspace, path }) =>
    (workspace.startsWith('services/') || workspace === 'packages/artifacts') &&
    !path.endsWith('.test.ts'),
)

test('every variable of the table is read by a service', () => {
  expect(documented.size).toBeGreaterThan(15)
  const unread = [...documented].filter((name) =>
    product.every(({ text }) => !new RegExp(`\\b${name}\\b`).test(text)),
  )
  expect(unread).toEqual([])
})

test('every variable that a configuration reads is in the table', () => {
  const read = product
    .filter(({ path }) => path.endsWith('/config.ts'))
    .flatMap(({ text }) => text.match(PUBLIC_NAME) ?? [])
  expect(read.length).toBeGreaterThan(10)
  const undocumented = [...new Set(read)].filter(
    (name) => !documented.has(name) && !INTERNAL.has(name),
  )
  expect(undocumented).toEqual([])
})
