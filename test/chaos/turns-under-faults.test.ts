// Goal: turns of a conversation run in their order, each with the history up to its own, whatever happens to the one
// before. Method: an upstream that records what it is asked with; a cancel, a kill and a hand-back between the turns.
import type { Message } from '@holdfast/protocol'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { request, send } from '../support/api.ts'
import { attach, type Checked, checkAll, checkRun } from '../support/checker.ts'
import { type Holdfast, type Runner, startHoldfast } from '../support/holdfast.ts'
import { answer, opening, startUpstream, type Upstream } from '../support/upstream.ts'
import { cancel, frozen, outcomes } from './observe.ts'

let upstream: Upstream
let holdfast: Holdfast
let victim: Runner
let heir: Runner
/** Turns whose message ends with an ellipsis are begun and not finished, the first time. */
const begun = new Set<string>()

beforeAll(async () => {
  upstream = await startUpstream((exchange) => {
    const asked = said(exchange.input.messages.at(-1))
    const again = begun.has(exchange.input.threadId)
    begun.add(exchange.input.threadId)
    if (asked.endsWith('…') && !again) exchange.say(...opening(exchange, 'Well, '))
    else answer(exchange, `Answer to ${asked}`)
  })
  holdfast = await startHoldfast({
    runners: 2,
    env: { LEASE_SECONDS: '2', DRAIN_SECONDS: '0' },
    agents: { agents: { remote: { type: 'ag-ui', url: upstream.url } } },
  })
  ;[victim, heir] = holdfast.runners as [Runner, Runner]
})

afterEach((context) => checkAll(holdfast, context))

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await upstream?.[Symbol.asyncDispose]()
})

function said(message: Message | undefined): string {
  return typeof message?.content === 'string' ? message.content : ''
}

const FAULTS = {
  'is cancelled': (runId: string) => cancel(holdfast.url, runId),
  'loses its runner': async () => {
    victim.kill('SIGKILL')
    await victim.exited
  },
  'is handed back': async () => {
    victim.kill('SIGTERM')
    await victim.exited
  },
}

test.for(Object.entries(FAULTS))(
  'three turns run in order when the first of them %s',
  async ([what, fault]) => {
    const url = holdfast.url
    const turns: string[] = []
    let conversationId = ''
    await frozen(heir, async () => {
      const first = await send(url, 'one…')
      conversationId = first.conversationId
      turns.push(first.runId)
      await attach(url, first.runId).seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
      for (const message of ['two', 'three']) {
        const more = { conversationId, onActive: 'enqueue' }
        turns.push((await send(url, message, more)).runId)
      }
      await fault(first.runId)
    })
    const replacing = what === 'is cancelled' ? undefined : holdfast.startRunner()
    const checked: Checked[] = []
    for (const runId of turns) checked.push(await checkRun(url, runId))
    if (replacing) victim = await replacing

    const stopped = what === 'is cancelled'
    const first = stopped ? 'Well, ' : 'Answer to one…'
    expect(checked.map(({ text }) => text)).toEqual([first, 'Answer to two', 'Answer to three'])
    expect(checked.map(({ run }) => run.state)).toEqual([
      stopped ? 'stopped' : 'succeeded',
      'succeeded',
      'succeeded',
    ])
    expect(checked.slice(1).map(({ run }) => outcomes(run))).toEqual([['succeeded'], ['succeeded']])
    const pauses = checked.slice(1).map(({ run }, at) => {
      const before = checked[at]?.run.finishedAt ?? ''
      return Date.parse(run.startedAt ?? '') - Date.parse(before)
    })
    // The transaction that ends a turn makes the next one due; nobody has to find it.
    for (const pauseMs of pauses) expect(pauseMs).toBeLessThan(6000)
    const asked = upstream.exchanges.filter(({ input }) => input.threadId === conversationId)
    const histories = asked.map(({ input }) =>
      input.messages.filter(({ role }) => role === 'user').map(({ content }) => content),
    )
    expect(histories.slice(stopped ? 1 : 2)).toEqual([
      ['one…', 'two'],
      ['one…', 'two', 'three'],
    ])
    const answers = asked
      .at(-1)
      ?.input.messages.filter(({ role }) => role === 'assistant')
      .map(said)
    expect(answers).toHaveLength(2)
    expect(answers?.[0]).toContain(first.trim())
    expect(answers?.[1]).toBe('Answer to two')
    const { body } = await request(`${url}/conversations/${conversationId}`)
    expect((body['messages'] as { turn: number }[]).map(({ turn }) => turn)).toEqual([
      1, 1, 2, 2, 3, 3,
    ])
  },
)
