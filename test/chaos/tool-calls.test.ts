// Goal: a tool call with an effect is never made twice unasked, and never goes on when its run has ended. Method: an
// MCP server whose answers the test gives; cancels, and kills of the runner, in the middle of a call.
import { readdirSync, readFileSync } from 'node:fs'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { request, send } from '../support/api.ts'
import { checkAll, checkRun } from '../support/checker.ts'
import { EVERYTHING } from '../support/everything-server.ts'
import { type Holdfast, type Runner, startHoldfast } from '../support/holdfast.ts'
import { type ModelServer, startModelServer } from '../support/model-server.ts'
import { startToolServer, type ToolServer } from '../support/tool-server.ts'
import { cancel, outcomes, ownerOf, until } from './observe.ts'

const SOON_MS = 1000

const call = (name: string, given: object = {}) => ({ name, arguments: JSON.stringify(given) })
const SCRIPTS = [
  { when: 'pay', calls: [call('tools__pay', { amount: 1 })], says: 'Paid.' },
  { when: 'look', calls: [call('tools__look')], says: 'Seen.' },
  { when: 'both', calls: [call('tools__look'), call('tools__pay')], says: 'Done.' },
  { when: 'echo', calls: [call('child__echo', { message: 'here' })], says: 'There.' },
]

/** It goes on when its input has ended, and has a child of its own. */
const STUBBORN = {
  command: 'sh',
  args: ['-c', '"$0" "$1" stdio; sleep 1000', process.execPath, EVERYTHING],
}

let model: ModelServer
let tools: ToolServer
let holdfast: Holdfast

beforeAll(async () => {
  model = await startModelServer({ scripts: SCRIPTS })
  tools = await startToolServer()
  const openai = { type: 'openai', baseUrl: model.url, model: 'scripted' }
  const mcpServers = { tools: { url: tools.url } }
  holdfast = await startHoldfast({
    runners: 2,
    env: { LEASE_SECONDS: '2', DRAIN_SECONDS: '1' },
    agents: {
      default: 'payer',
      agents: {
        payer: { ...openai, mcpServers },
        again: { ...openai, mcpServers, tools: { tools__pay: { onInDoubt: 'retry' } } },
        local: {
          ...openai,
          mcpServers: { child: STUBBORN },
        },
      },
    },
  })
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await tools?.[Symbol.asyncDispose]()
  await model?.stop()
})

/** A run in the middle of its first call, and who executes it. */
async function sendToTools(message: string, agent = 'payer') {
  const before = tools.calls.length
  const sent = await send(holdfast.url, message, { agent })
  return {
    ...sent,
    before,
    call: await tools.call(before),
    runner: await ownerOf(holdfast, sent.runId),
  }
}

async function killed(runner: Runner): Promise<void> {
  runner.kill('SIGKILL')
  await runner.exited
  await holdfast.startRunner()
}

test('a cancel in the middle of calls is told to the server, and nothing of them is left open', async () => {
  const { runId, conversationId, before, call: first } = await sendToTools('both please')
  const second = await tools.call(before + 1)
  const cancelledAt = performance.now()
  expect(await cancel(holdfast.url, runId)).toBe(202)
  for (const open of [first, second]) {
    expect((await open.cancelled) - cancelledAt).toBeLessThan(SOON_MS)
    expect((await open.closed) - cancelledAt).toBeLessThan(SOON_MS)
  }
  const { run, messages, log } = await checkRun(holdfast.url, runId)
  expect(run).toMatchObject({ state: 'stopped', outcome: 'cancelled' })
  const answers = messages.flatMap(({ message }) => (message.role === 'tool' ? [message] : []))
  expect(answers.map(({ content }) => content)).toEqual(['interrupted', 'interrupted'])
  expect(log.filter(({ event }) => event.type === 'TOOL_CALL_RESULT')).toHaveLength(2)
  // Late answers are nobody's; the next turn has a history that a model takes, and the same session.
  first.answer('late')
  second.answer('late')
  const next = await send(holdfast.url, 'hello', { conversationId })
  expect((await checkRun(holdfast.url, next.runId)).run).toMatchObject({ outcome: 'success' })
  const [asked] = model.requests().slice(-1)
  expect(asked?.filter(({ role }) => role === 'tool')).toHaveLength(2)
})

test('a deadline in the middle of a call ends it as a cancel does', async () => {
  const before = tools.calls.length
  const { runId } = await send(holdfast.url, 'pay now', { deadlineMs: 1500 })
  const open = await tools.call(before)
  await open.cancelled
  await open.closed
  const { run } = await checkRun(holdfast.url, runId)
  expect(run).toMatchObject({ state: 'failed', error: { code: 'deadline_exceeded' } })
})

test('a call whose runner was killed is in doubt, and is not made again', async () => {
  const { runId, before, runner } = await sendToTools('pay now')
  await killed(runner)
  const { run, messages } = await checkRun(holdfast.url, runId)
  expect(run).toMatchObject({ state: 'failed', error: { code: 'in_doubt' } })
  expect(messages.at(-1)).toMatchObject({ message: { role: 'tool', content: 'interrupted' } })
  expect(tools.calls).toHaveLength(before + 1)
  const { body } = await request(`${holdfast.url}/runs/${runId}`)
  const { idempotencyKey } = (body['inDoubt'] as { idempotencyKey: string }[])[0] ?? {}
  expect(tools.calls[before]?.meta['holdfast/idempotencyKey']).toBe(idempotencyKey)
})

test.each([
  ['that only reads', 'look around', 'payer', 'Seen.'],
  ['that its operator allows to be repeated', 'pay now', 'again', 'Paid.'],
])('a call %s is made once more, with the same key', async (_what, message, agent, said) => {
  const { runId, before, call: lost, runner } = await sendToTools(message, agent)
  const asked = model.requests().length
  await killed(runner)
  const repeated = await tools.call(before + 1)
  expect(repeated.meta).toEqual(lost.meta)
  expect(repeated.arguments).toEqual(lost.arguments)
  repeated.answer('ok')
  const { run, text } = await checkRun(holdfast.url, runId)
  expect(outcomes(run)).toEqual(['lost', 'succeeded'])
  expect(text).toBe(said)
  expect(tools.calls).toHaveLength(before + 2)
  // What the model decided was kept: it is asked only what comes next.
  expect(model.requests()).toHaveLength(asked + 1)
})

test('a call that was answered is not made again by the next attempt', async () => {
  const { runId, before, call: look, runner } = await sendToTools('both please')
  const pay = await tools.call(before + 1)
  const [reads, pays] = look.name === 'look' ? [look, pay] : [pay, look]
  pays.answer('paid')
  await until('the payment is in the log', async () => {
    const { body } = await request(`${holdfast.url}/runs/${runId}`)
    return Number(body['sequence']) > 0 && (await spanEnded(runId, 'tools__pay'))
  })
  await killed(runner)
  const repeated = await tools.call(before + 2)
  expect(repeated.name).toBe(reads.name)
  repeated.answer('seen')
  const { run, messages } = await checkRun(holdfast.url, runId)
  expect(run).toMatchObject({ outcome: 'success' })
  const answers = messages.flatMap(({ message }) => (message.role === 'tool' ? [message] : []))
  expect(new Set(answers.map(({ content }) => content))).toEqual(new Set(['paid', 'seen']))
  expect(tools.calls).toHaveLength(before + 3)
})

test('a server that is our child ends with its runner, however that ends', async () => {
  const { runId } = await send(holdfast.url, 'echo it', { agent: 'local' })
  expect((await checkRun(holdfast.url, runId)).run).toMatchObject({ outcome: 'success' })
  const runner = await ownerOf(holdfast, runId)
  const [child] = childrenOf(runner.pid, EVERYTHING)
  if (child === undefined) throw new Error('there is a server')
  process.kill(child, 'SIGKILL')
  // A server that crashed is started again by whoever needs it next.
  const again = await send(holdfast.url, 'echo it', { agent: 'local' })
  expect((await checkRun(holdfast.url, again.runId)).run).toMatchObject({ outcome: 'success' })
  const owners = [runner, await ownerOf(holdfast, again.runId)]
  const children = owners.flatMap(({ pid }) => childrenOf(pid, EVERYTHING))
  expect(children.length).toBeGreaterThan(0)
  for (const owner of new Set(owners)) await killed(owner)
  await until('the servers are gone', () => children.every((pid) => !isAlive(pid)))
})

test('a drain ends the servers that are our children', async () => {
  const { runId } = await send(holdfast.url, 'echo it', { agent: 'local' })
  await checkRun(holdfast.url, runId)
  const runner = await ownerOf(holdfast, runId)
  const children = childrenOf(runner.pid, EVERYTHING)
  expect(children).toHaveLength(1)
  runner.kill('SIGTERM')
  expect(await runner.exited).toMatchObject({ code: 0 })
  expect(children.filter(isAlive)).toEqual([])
  await holdfast.startRunner()
})

async function spanEnded(runId: string, name: string): Promise<boolean> {
  const { body } = await request(`${holdfast.url}/runs/${runId}/timeline`)
  const spans = body['spans'] as { key: string; outcome: string | null }[]
  return spans.some(({ key, outcome }) => key.startsWith(name) && outcome === 'done')
}

function childrenOf(parent: number, script: string): number[] {
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry))
    .map(Number)
    .filter((pid) => {
      const stat = readOr(`/proc/${pid}/stat`)
      const ppid = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1])
      return ppid === parent && readOr(`/proc/${pid}/cmdline`).includes(script)
    })
}

function isAlive(pid: number): boolean {
  return readOr(`/proc/${pid}/cmdline`) !== ''
}

/** A process may end while it is looked at. */
function readOr(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
