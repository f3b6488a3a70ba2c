import { type AgentDefinition, defineAgent } from '@holdfast/agent-kit'
import {
  type AgUiEvent,
  agentHistory,
  closingEvents,
  emptyFold,
  foldEvents,
} from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { AttemptAborted } from '../../abort.ts'
import { AgentFailure, type AgentRun } from '../agent.ts'
import { recordedRun } from '../testing/recorded-run.ts'
import { createModuleAgent } from './module-agent.ts'

const strays = { within: <T>(_origin: unknown, body: () => T) => body(), [Symbol.dispose]() {} }

function start(definition: AgentDefinition, given: Partial<AgentRun> = {}) {
  const run = recordedRun(given)
  const agent = createModuleAgent({ current: defineAgent(definition) }, strays)
  const ended = agent.run(run).catch((error: unknown) => error)
  return { run, ended }
}

async function eventsOf(definition: AgentDefinition, given: Partial<AgentRun> = {}) {
  const { run, ended } = start(definition, given)
  const outcome = await ended
  run.expectNoListeners()
  return { events: run.events, outcome, fold: foldEvents(emptyFold(), run.events) }
}

async function* pieces(...texts: string[]) {
  yield* texts
}

const typesOf = (events: readonly AgUiEvent[]) => events.map(({ type }) => type)

test('text and reasoning are one message each, whole or as they come', async () => {
  const said: string[] = []
  const { events, outcome, fold } = await eventsOf({
    async run(run) {
      await run.reasoning(pieces('first ', 'I think'))
      said.push(await run.text('Good '), await run.text(pieces('', 'eve', '', 'ning')))
      said.push(await run.text(''), await run.text(pieces()))
      return { said: 2 }
    },
  })
  expect(said).toEqual(['Good ', 'evening', '', ''])
  expect(outcome).toEqual({ outcome: 'success', result: { said: 2 } })
  expect(fold.open).toEqual([])
  expect(fold.messages.map(({ role, content }) => [role, content])).toEqual([
    ['reasoning', 'first I think'],
    ['assistant', 'Good '],
    ['assistant', 'evening'],
  ])
  expect(typesOf(events).slice(0, 6)).toEqual([
    'REASONING_START',
    'REASONING_MESSAGE_START',
    'REASONING_MESSAGE_CONTENT',
    'REASONING_MESSAGE_CONTENT',
    'REASONING_MESSAGE_END',
    'REASONING_END',
  ])
})

test('pairs that were cut between two deltas are joined, and what PostgreSQL refuses is replaced', async () => {
  const { fold } = await eventsOf({
    async run(run) {
      await run.text(pieces('a\ud83d', '\ude00b\u0000', '\ud83d'))
      await run.text(`${'x'.repeat(16_383)}\u{1f600}`)
    },
  })
  expect(fold.messages[0]?.content).toBe('a😀b\ufffd\ufffd')
  expect(fold.messages[1]?.content).toBe(`${'x'.repeat(16_383)}😀`)
})

test('a message is ended when its source fails, and what is no text is refused', async () => {
  const { fold, outcome } = await eventsOf({
    async run(run) {
      await run.text(pieces('so far', undefined as unknown as string))
    },
  })
  expect(fold.open).toEqual([])
  expect(outcome).toMatchObject({
    code: 'agent_error',
    cause: { message: 'text: undefined is not text' },
  })
})

test('three parallel tools of which one throws: the others are cancelled, in the log and in a valid history', async () => {
  const { fold, outcome } = await eventsOf({
    async run(run) {
      await run.group((group) => {
        for (const city of ['Lisbon', 'Tokyo']) {
          group.spawn((own) =>
            own.tool('weather', { city }, ({ run: inner }) => inner.sleep(60_000)),
          )
        }
        group.spawn((own) =>
          own.tool('weather', { city: 'Nowhere' }, async ({ run: inner }) => {
            await inner.sleep(5)
            throw new Error('provider text')
          }),
        )
      })
    },
  })
  expect(outcome).toMatchObject({ code: 'agent_error', cause: { message: 'provider text' } })
  const results = fold.messages.flatMap((message) =>
    message.role === 'tool' ? [message.content] : [],
  )
  expect(results).toEqual(['cancelled', 'cancelled', 'failed'])
  expect(JSON.stringify(fold)).not.toContain('provider text')
  const history = agentHistory(fold.messages, { history: 'all', statuses: new Map() })
  expect(history.map(({ role }) => role)).toEqual(Array(3).fill(['assistant', 'tool']).flat())
  expect(closingEvents(fold, { answerTools: true, mintId: () => 'x' })).toEqual([])
})

test('a tool is a step with a key of its own for each equal call, and its result is shown', async () => {
  const keys: string[] = []
  const { fold } = await eventsOf(
    {
      async run(run) {
        const tool = (args: unknown) => run.tool('search', args, () => ({ found: 1 }))
        await tool({ q: 'a' })
        await tool({ q: 'a' })
        await tool({ q: 'b' })
        await run.tool('note', {}, ({ idempotencyKey }) => idempotencyKey, { key: 'mine' })
        await run.tool('nothing', {}, () => undefined)
      },
    },
    {
      step: async (key, options, fn) => {
        expect(options).toMatchObject({ kind: 'tool', policy: 'stop' })
        keys.push(key)
        return await fn({ idempotencyKey: `run:${key}`, signal: new AbortController().signal })
      },
    },
  )
  expect(new Set(keys).size).toBe(5)
  expect(keys[1]).toBe(`${keys[0]}:2`)
  expect(keys[3]).toBe('mine')
  const results = fold.messages.flatMap((message) =>
    message.role === 'tool' ? [message.content] : [],
  )
  expect(results).toEqual(['{"found":1}', '{"found":1}', '{"found":1}', 'run:mine', 'done'])
})

test('the state is seen changing, and a patch that does not fit changes nothing', async () => {
  const seen: unknown[] = []
  const { fold, events } = await eventsOf(
    {
      async run(run) {
        seen.push(run.state.value)
        await run.state.set({ count: 1 })
        await run.state.patch([{ op: 'replace', path: '/count', value: 2 }])
        seen.push(run.state.value)
        seen.push(await run.state.patch([{ op: 'remove', path: '/none' }]).catch((error) => error))
      },
    },
    { state: { old: true } },
  )
  expect(seen).toEqual([
    { old: true },
    { count: 2 },
    expect.objectContaining({ code: 'invalid_patch' }),
  ])
  expect(fold.state).toEqual({ count: 2 })
  expect(typesOf(events)).toEqual(['STATE_SNAPSHOT', 'STATE_DELTA'])
})

test('an interrupt ends the run as one that waits, and its answers are there in the next', async () => {
  const ask = { reason: 'approval', message: 'Send it?' }
  const { outcome } = await eventsOf({ run: (run) => run.interrupt(ask, { ...ask, id: 'mine' }) })
  expect(outcome).toEqual({
    outcome: 'interrupt',
    interrupts: [
      { ...ask, id: 'run.1.i1' },
      { ...ask, id: 'mine' },
    ],
  })
  const resume = [{ interruptId: 'mine', status: 'resolved' as const, payload: true }]
  const next = await eventsOf({ run: (run) => run.resume }, { resume })
  expect(next.outcome).toEqual({ outcome: 'success', result: resume })
})

test('a call may be left for others to answer, and an open one is answered in a later run', async () => {
  const asked = await eventsOf({
    async run(run) {
      const toolCallId = await run.call('send_money', { to: 'Ann' })
      return run.interrupt({ reason: 'tool_call', toolCallId })
    },
  })
  const [call] = asked.fold.messages
  expect(call).toMatchObject({ toolCalls: [{ function: { name: 'send_money' } }] })
  const toolCallId = call?.role === 'assistant' ? (call.toolCalls?.[0]?.id ?? '') : ''
  expect(asked.outcome).toMatchObject({ interrupts: [{ toolCallId }] })
  const open = { toolCallId, name: 'send_money', messageId: 'm' }
  const next = await eventsOf(
    {
      async run(run) {
        for (const one of run.openCalls) await run.answer(one, () => ({ sent: true }))
      },
    },
    { openCalls: [open] },
  )
  expect(next.events).toEqual([
    expect.objectContaining({ type: 'TOOL_CALL_RESULT', toolCallId, content: '{"sent":true}' }),
  ])
})

test('usage adds up, also of a run that fails', async () => {
  const spent = { model: 'm', inputTokens: 3, outputTokens: 5 }
  const good = await eventsOf({ run: (run) => run.usage(spent) })
  expect(good.outcome).toMatchObject({ usage: [spent] })
  const bad = await eventsOf({
    run(run) {
      run.usage(spent)
      throw new Error('no')
    },
  })
  expect(bad.outcome).toMatchObject({ code: 'agent_error', usage: [spent] })
})

test('a limit of ours keeps its code, however deep it lies', async () => {
  const { outcome } = await eventsOf(
    {
      run: (run) =>
        run.group((group) => {
          group.spawn((own) => own.text('too much'))
          group.spawn(() => Promise.reject(new TypeError('another')))
        }),
    },
    { emit: () => Promise.reject(new AgentFailure('limit_exceeded', 'too long')) },
  )
  expect(outcome).toMatchObject({ code: 'limit_exceeded' })
})

test('a result that is not JSON is the agent’s failure', async () => {
  const { outcome } = await eventsOf({ run: () => ({ big: 1n }) })
  expect(outcome).toMatchObject({
    code: 'agent_error',
    cause: { message: 'what run returned is not JSON' },
  })
})

test('an abort reaches the agent with its reason, and what it begins afterwards is refused', async () => {
  const told: unknown[] = []
  const { run, ended } = start({
    async run(own) {
      try {
        await own.text('I begin')
        await own.sleep(60_000)
      } catch (error) {
        told.push(error)
        told.push(await own.text('more').catch((refused: unknown) => refused))
        throw error
      }
    },
  })
  await run.emitted(3)
  const reason = new AttemptAborted('drain')
  run.abort.abort(reason)
  expect(await ended).toBe(reason)
  expect(told).toEqual([
    expect.objectContaining({ name: 'Cancelled', reason: 'drain' }),
    expect.objectContaining({ name: 'Cancelled', reason: 'drain' }),
  ])
  expect(run.events).toHaveLength(3)
})

test('a checkpoint keeps the author’s data, the state and the count of equal calls', async () => {
  const saved: unknown[] = []
  const keys: string[] = []
  const given: Partial<AgentRun> = {
    checkpoint: async (data) => void saved.push(data),
    step: async (key, _options, fn) => {
      keys.push(key)
      return await fn({ idempotencyKey: key, signal: new AbortController().signal })
    },
  }
  const look = (run: Parameters<AgentDefinition['run']>[0]) => run.tool('look', {}, () => 1)
  await eventsOf(
    {
      async run(run) {
        await look(run)
        await run.state.set({ done: 1 })
        await run.checkpoint({ at: 'middle' })
      },
    },
    given,
  )
  const again = async (current: boolean) => {
    const agent: AgentDefinition = {
      resumes: true,
      async run(run) {
        await look(run)
        return [run.saved, run.state.value]
      },
    }
    const checkpoint = { data: saved[0], sequence: 9, current }
    return (await eventsOf(agent, { ...given, saved: checkpoint })).outcome
  }
  expect(await again(true)).toMatchObject({
    result: [{ data: { at: 'middle' }, current: true }, { done: 1 }],
  })
  expect(await again(false)).toMatchObject({ result: [{ current: false }, null] })
  expect(keys).toEqual([keys[0], `${keys[0]}:2`, keys[0]])
})
