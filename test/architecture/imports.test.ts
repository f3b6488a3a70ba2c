import { posix } from 'node:path'
import { expect, test } from 'vitest'
import { type Import, importsOf, type SourceFile, sourceFiles } from './source-files.ts'

/** Who may import whom. What is not in this table is not allowed. */
const WORKSPACE_EDGES: Readonly<Record<string, readonly string[]>> = {
  'packages/std': [],
  'packages/protocol': ['@holdfast/std'],
  'packages/local-postgres': ['@holdfast/std'],
  'packages/store': ['@holdfast/std', '@holdfast/protocol'],
  'packages/artifacts': ['@holdfast/std'],
  'packages/agent-kit': ['@holdfast/std', '@holdfast/protocol'],
  'packages/client': ['@holdfast/std', '@holdfast/protocol'],
  'services/bff': ['@holdfast/std', '@holdfast/protocol', '@holdfast/store', '@holdfast/artifacts'],
  'services/runner': [
    '@holdfast/std',
    '@holdfast/protocol',
    '@holdfast/store',
    '@holdfast/artifacts',
    '@holdfast/agent-kit',
  ],
  'services/migrate': ['@holdfast/std', '@holdfast/store'],
  'services/audit': ['@holdfast/std', '@holdfast/store'],
  'services/dev': ['@holdfast/std', '@holdfast/store', '@holdfast/local-postgres'],
  'examples/research-agent': ['@holdfast/agent-kit'],
  'examples/ai-sdk-agent': ['@holdfast/agent-kit', '@holdfast/protocol'],
  'examples/agentcore-agent': ['@holdfast/agent-kit'],
  test: [
    '@holdfast/std',
    '@holdfast/protocol',
    '@holdfast/store',
    '@holdfast/agent-kit',
    '@holdfast/client',
    '@holdfast/local-postgres',
  ],
}

/** Only the store knows SQL; tests look into the database as an outsider would. */
const SQL_LIBRARIES = ['pg', 'kysely']
const MAY_USE_SQL = ['packages/store', 'test']

/** Agents bring their frameworks along in processes of their own. */
const AGENT_FRAMEWORKS = [
  /^@mastra\//,
  /^@langchain\//,
  /^langchain/,
  /^@openai\//,
  /^openai$/,
  /^@anthropic-ai\//,
  /^ai$/,
  /^@ai-sdk\//,
  /^@ag-ui\/mastra/,
  /^@ag-ui\/langgraph/,
]

const files = await sourceFiles()
const product = files.filter(({ workspace }) => /^(packages|services)\//.test(workspace))
const imports = files.flatMap((file) =>
  importsOf(file).map((one) => ({ ...one, workspace: file.workspace })),
)

test('the files that the rules are about are found', () => {
  expect(product.length).toBeGreaterThan(50)
  expect(imports.length).toBeGreaterThan(200)
})

test('a workspace imports only those below it', () => {
  const forbidden = imports.filter(({ workspace, specifier }) => {
    if (!specifier.startsWith('@holdfast/')) return false
    return !(WORKSPACE_EDGES[workspace] ?? []).includes(specifier)
  })
  expect(forbidden.map(line)).toEqual([])
})

test('a workspace is imported by its name alone, never into its files', () => {
  const deep = imports.filter(({ specifier }) => /^@holdfast\/[^/]+\//.test(specifier))
  expect(deep.map(line)).toEqual([])
})

test('a relative import stays inside its package and names a source file', () => {
  const wrong = imports.filter(({ from, specifier, workspace }) => {
    if (!specifier.startsWith('.')) return specifier.startsWith('/')
    const target = posix.join(posix.dirname(from), specifier)
    return !target.startsWith(`${workspace}/`) || !/\.(ts|mts|mjs|json)$/.test(target)
  })
  expect(wrong.map(line)).toEqual([])
})

test('only the store imports an SQL library', () => {
  const wrong = imports.filter(
    ({ workspace, specifier }) =>
      SQL_LIBRARIES.includes(packageOf(specifier)) && !MAY_USE_SQL.includes(workspace),
  )
  expect(wrong.map(line)).toEqual([])
})

test('the protocol does no I/O: it imports nothing of Node', () => {
  const wrong = imports.filter(
    ({ workspace, from, specifier }) =>
      workspace === 'packages/protocol' &&
      !from.endsWith('.test.ts') &&
      specifier.startsWith('node:'),
  )
  expect(wrong.map(line)).toEqual([])
})

test('no agent framework is imported outside the examples', () => {
  const wrong = imports.filter(
    ({ workspace, specifier }) =>
      !workspace.startsWith('examples/') && AGENT_FRAMEWORKS.some((name) => name.test(specifier)),
  )
  expect(wrong.map(line)).toEqual([])
})

test('modules of Node are imported with their prefix', () => {
  const bare = imports.filter(({ specifier }) =>
    /^(fs|path|crypto|http|net|os|url|util|events|stream|child_process|worker_threads)(\/|$)/.test(
      specifier,
    ),
  )
  expect(bare.map(line)).toEqual([])
})

test('nothing but a main.ts reads the environment', () => {
  const readers = product.filter(
    ({ path, text }) =>
      /\bprocess\.env\b|\benv\b.*from 'node:process'/.test(code(text)) &&
      !path.endsWith('/main.ts'),
  )
  expect(readers.map(({ path }) => path)).toEqual([])
})

test('no file is longer than 400 lines', () => {
  const long = files.filter(({ text }) => text.split('\n').length > 401)
  expect(long.map(({ path, text }) => `${path}: ${text.split('\n').length - 1}`)).toEqual([])
})

test('no file is named after nothing in particular', () => {
  const vague = files.filter(({ path }) =>
    /(^|\/)(utils?|helpers?|common|manager|types|misc)(\.|\/|$)/.test(path),
  )
  expect(vague.map(({ path }) => path)).toEqual([])
})

test('an index.ts stands only at the root of a package', () => {
  const nested = files.filter(
    ({ path }) =>
      path.endsWith('/index.ts') && !/^(packages|examples)\/[^/]+\/src\/index\.ts$/.test(path),
  )
  expect(nested.map(({ path }) => path)).toEqual([])
})

test('nothing silences the type checker or the linter', () => {
  const silenced = files.filter(
    ({ path, text }) =>
      /(@ts-(ignore|expect-error|nocheck)|(oxlint|eslint)-disable|biome-ignore)/.test(text) &&
      !path.startsWith('test/architecture/'),
  )
  expect(silenced.map(({ path }) => path)).toEqual([])
})

function packageOf(specifier: string): string {
  const [scope = '', name = ''] = specifier.split('/')
  return scope.startsWith('@') ? `${scope}/${name}` : scope
}

function line({ from, specifier }: Import): string {
  return `${from} imports ${specifier}`
}

/** Without comments, which may speak of what the code must not do. */
function code(text: SourceFile['text']): string {
  return text.replace(/\/\*[\s\S]*?\*\/|(^|\s)\/\/.*$/gm, '')
}
