// Goal: what upstreams send harms neither readers nor the runner: each run of the corpus ends as it must and shows
// nothing of a provider's words, address or key, and bodies of real size cost their own run alone. Method: the corpus,
// and bodies that are made while they are read, through a whole Holdfast; each message says which it wants.
import { readFile } from 'node:fs/promises'
import { violations } from '@holdfast/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { send } from '../support/api.ts'
import { type Checked, checkRun } from '../support/checker.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { corpusCases, type HostileServer, startHostileServer } from '../support/hostile-server.ts'
import { until } from '../support/readers.ts'

const KEY = 'the-operators-own-key'
const SOON_MS = 10_000
const AT_ONCE = 6
/** Several times what one body may hold in a buffer; far less than any of them would grow to. */
const GROWTH_BYTES_MAX = 256 << 20

const endless = {
  line: 'x'.repeat(1 << 16),
  data: 'data:\n'.repeat(10_000),
  comments: ': hold\n\n'.repeat(8000),
}
const noise = {
  'ag-ui': `data: {"type":"NOISE","value":"${'x'.repeat(200_000)}"}\n\n`,
  openai: `data: {"choices":[],"noise":"${'x'.repeat(200_000)}"}\n\n`,
}
const LETTERS = 'x'.repeat(9000)
const EMOJI = '😀'.repeat(3000)
const RESULT = 'é'.repeat(250_000)

let upstream: HostileServer
let holdfast: Holdfast

beforeAll(async () => {
  upstream = await startHostileServer({
    'endless-line': () => forever(endless.line, 'data: '),
    'endless-data': () => forever(endless.data),
    'endless-comments': () => forever(endless.comments),
    'endless-noise/ag-ui': () => forever(noise['ag-ui']),
    'endless-noise/openai': () => forever(noise.openai),
    'large/ag-ui': () => largeAnswer(),
    'large/openai': () => [
      chunk({ content: LETTERS }),
      chunk({ content: EMOJI }),
      chunk({}, 'stop'),
    ],
  })
  const mine = { headers: { authorization: `Bearer ${KEY}` }, maxAttempts: 1 }
  holdfast = await startHoldfast({
    env: { LEASE_SECONDS: '30' },
    agents: {
      default: 'demo',
      agents: {
        demo: { type: 'demo' },
        'ag-ui': { type: 'ag-ui', url: `${upstream.url}/agent`, ...mine },
        openai: { type: 'openai', baseUrl: upstream.url, model: 'scripted', ...mine },
      },
    },
  })
})

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await upstream?.[Symbol.asyncDispose]()
})

test.each([
  ['ag-ui', ''],
  ['openai', 'openai/'],
] as const)(
  '%s: every case ends as it must, and readers see nothing of the provider',
  async (agent, folder) => {
    const cases = corpusCases(folder)
    expect(cases.length).toBeGreaterThan(80)
    for (let from = 0; from < cases.length; from += AT_ONCE) {
      await Promise.all(
        cases.slice(from, from + AT_ONCE).map(async ({ name, failure }) => {
          const { run, log, messages } = await ended(name, agent)
          expect(run.error?.code, name).toBe(failure?.code)
          const shown = JSON.stringify([run, log, messages])
          for (const secret of ['sk-MARK', KEY, new URL(upstream.url).host]) {
            expect(shown, name).not.toContain(secret)
          }
        }),
      )
    }
    expect(await violations(holdfast.store)).toEqual([])
    await until('every connection is closed', SOON_MS, () => upstream.open === 0)
  },
)

test.each([
  ['endless-line', 'ag-ui'],
  ['endless-data', 'openai'],
  ['endless-comments', 'ag-ui'],
  ['endless-noise/ag-ui', 'ag-ui'],
  ['endless-noise/openai', 'openai'],
])('%s reaches a limit before it reaches the memory, and nobody else', async (name, agent) => {
  const before = await peakBytes()
  const running = ended(name, agent)
  const { run: other } = await checkRun(holdfast.url, (await send(holdfast.url, 'hello')).runId)
  expect(other.error).toBeNull()
  const { run } = await running
  expect(run.error?.code).toBe('limit_exceeded')
  await until('the connection is closed', SOON_MS, () => upstream.open === 0)
  expect((await peakBytes()) - before).toBeLessThan(GROWTH_BYTES_MAX)
})

test.each(['ag-ui', 'openai'])(
  '%s: texts too large to notify anybody of come whole',
  async (agent) => {
    const { run, text, log } = await ended(`large/${agent}`, agent)
    expect(run.error).toBeNull()
    expect(text).toBe(LETTERS + EMOJI)
    const results = log.filter(({ event }) => event.type === 'TOOL_CALL_RESULT')
    expect(results.map(({ event }) => 'content' in event && event.content === RESULT)).toEqual(
      agent === 'ag-ui' ? [true] : [],
    )
  },
)

async function ended(name: string, agent: string): Promise<Checked> {
  const { runId } = await send(holdfast.url, `case:${name}`, { agent })
  return checkRun(holdfast.url, runId)
}

/** The most memory that the runner ever had, where the system tells. */
async function peakBytes(): Promise<number> {
  const [runner] = holdfast.runners
  const status = await readFile(`/proc/${runner?.pid}/status`, 'utf8').catch(() => '')
  return Number(/VmHWM:\s+(\d+) kB/.exec(status)?.[1] ?? 0) * 1024
}

function* forever(part: string, first = ''): Iterable<string> {
  yield first
  for (;;) yield part
}

function largeAnswer(): string[] {
  const call = { toolCallId: 'c', toolCallName: 'look' }
  const events = [
    { type: 'TEXT_MESSAGE_START', messageId: 'a', role: 'assistant' },
    { type: 'TEXT_MESSAGE_CONTENT', messageId: 'a', delta: LETTERS },
    { type: 'TEXT_MESSAGE_CONTENT', messageId: 'a', delta: EMOJI },
    { type: 'TEXT_MESSAGE_END', messageId: 'a' },
    { type: 'TOOL_CALL_START', ...call },
    { type: 'TOOL_CALL_END', toolCallId: 'c' },
    { type: 'TOOL_CALL_RESULT', messageId: 'r', toolCallId: 'c', content: RESULT },
    { type: 'RUN_FINISHED', threadId: 't', runId: 'r' },
  ]
  return events.map((event) => `data: ${JSON.stringify(event)}\n\n`)
}

function chunk(delta: object, reason: string | null = null): string {
  return `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: reason }] })}\n\n`
}
