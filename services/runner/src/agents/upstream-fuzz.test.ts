// Goal: whatever bytes an upstream sends, and however it cuts, delays or breaks them, an attempt ends, is a success
// only with the protocol's own ending, writes what AG-UI's verifier accepts, and leaves nothing behind. Method: the
// corpus, damaged by chance, and pure noise. The nightly campaign has more of it, under other seeds.
import { verifyEvents } from '@ag-ui/client'
import {
  type AgUiEvent,
  closingEvents,
  EventType,
  emptyFold,
  foldEvents,
  parseAgentsFile,
} from '@holdfast/protocol'
import fc from 'fast-check'
import { pino } from 'pino'
import { from, lastValueFrom, toArray } from 'rxjs'
import { expect, inject, test } from 'vitest'
import { createAgUiAgent } from './ag-ui/ag-ui-agent.ts'
import { agUi } from './ag-ui/testing/protocol.ts'
import { type Agent, AgentFailure } from './agent.ts'
import { createOpenAiAgent } from './openai/openai-agent.ts'
import { openAi } from './openai/testing/protocol.ts'
import { damagedBodies, partsOf, type Wire, wires } from './testing/damage.ts'
import { endingIn, type Protocol } from './testing/every-cut.ts'
import { readParts } from './testing/in-process.ts'
import { recordedRun } from './testing/recorded-run.ts'
import { scriptedUpstream } from './testing/scripted-upstream.ts'
import { readCases, said } from './testing/upstream-cases.ts'

declare module 'vitest' {
  interface ProvidedContext {
    fuzz: { seed: number; bodies: number }
  }
}

const { seed: SEED, bodies: BODIES } = inject('fuzz')
const CONNECTIONS = Math.ceil(BODIES / 20)
const AT_ONCE = 50

const outbound = { allow: [], openMode: true }
const limits = { idleTimeoutMs: 1000, progressTimeoutMs: 2000 }
const protocols: [string, string, Protocol, (url: string) => Agent][] = [
  ['ag-ui', './', agUi, agUiAgent],
  ['openai', 'openai/', openAi, openAiAgent],
]

test.each(protocols)(
  '%s: damaged bodies end, the same in any parts',
  { timeout: 600_000 },
  async (_, folder, protocol) => {
    const case_ = { rule: '', events: [], run: { usedIds: ['a', 'r1'] } }
    await fc.assert(
      fc.asyncProperty(wires(damagedBodies(readCases(folder))), async (wire) => {
        const ending = wire.ending === 'end' ? 'end' : 'break'
        const whole = await readParts([wire.body], case_, protocol.read, ending)
        const inParts = await readParts(partsOf(wire), case_, protocol.read, ending)
        expect(said(inParts.events)).toEqual(said(whole.events))
        expect(inParts.failure?.code).toBe(whole.failure?.code)
        await expectSound(inParts.events, inParts.failure, wire, protocol)
      }),
      { seed: SEED, numRuns: BODIES },
    )
  },
)

test.each(protocols)(
  '%s: over connections nothing hangs or stays',
  { timeout: 600_000 },
  async (_, folder, protocol, agentAt) => {
    const drawn = fc.sample(wires(damagedBodies(readCases(folder))), {
      seed: SEED,
      numRuns: CONNECTIONS,
    })
    const before = timers()
    for (let from = 0; from < drawn.length; from += AT_ONCE) {
      await Promise.all(
        drawn.slice(from, from + AT_ONCE).map((wire) => converse(wire, protocol, agentAt)),
      )
    }
    expect(timers()).toBeLessThanOrEqual(before)
  },
)

async function converse(wire: Wire, protocol: Protocol, agentAt: (url: string) => Agent) {
  const run = recordedRun()
  const what = `seed ${SEED}: ${Buffer.from(wire.body).toString('base64')}`
  await using upstream = await scriptedUpstream({
    parts: partsOf(wire),
    everyMs: wire.pauseMs,
    ending: wire.ending,
  })
  const failure = await agentAt(upstream.url)
    .run(run)
    .then(
      () => undefined,
      (error: unknown) => error,
    )
  if (failure !== undefined) expect(failure, what).toBeInstanceOf(AgentFailure)
  await expectSound(run.events, failure, wire, protocol)
  run.expectNoListeners()
  await upstream.allClosed()
}

async function expectSound(
  events: readonly AgUiEvent[],
  failure: unknown,
  wire: Wire,
  { isEnding }: Protocol,
) {
  if (failure === undefined) {
    // The blank line of a last event may be missing.
    const closed = Buffer.concat([wire.body, Buffer.from('\n\n')])
    expect(endingIn(closed, isEnding), 'a success without an ending').toBe(true)
  }
  expect(JSON.stringify(events)).not.toMatch(/\\u0000|\\ud[89a-f]/)
  const started: AgUiEvent = { type: EventType.RUN_STARTED, threadId: 't', runId: 'r' }
  const finished: AgUiEvent = { type: EventType.RUN_FINISHED, threadId: 't', runId: 'r' }
  let minted = 0
  const mintId = () => {
    minted += 1
    return `closing-${minted}`
  }
  // A failure leaves open what was being said; the end of a run closes it.
  const closing =
    failure === undefined
      ? []
      : closingEvents(foldEvents(emptyFold(), events), { answerTools: true, mintId })
  const all = [started, ...events, ...closing, finished].map((event) => structuredClone(event))
  await lastValueFrom(from(all).pipe(verifyEvents(), toArray()))
}

function agUiAgent(url: string): Agent {
  const { a } = parseAgentsFile({ agents: { a: { type: 'ag-ui', url, ...limits } } }, {}).agents
  if (a?.type !== 'ag-ui') throw new Error('expected an ag-ui agent')
  return createAgUiAgent(a, { outbound })
}

function openAiAgent(url: string): Agent {
  const spec = { type: 'openai', baseUrl: url, model: 'scripted', maxSteps: 1, ...limits }
  const { a } = parseAgentsFile({ agents: { a: spec } }, {}).agents
  if (a?.type !== 'openai') throw new Error('expected an openai agent')
  return createOpenAiAgent(a, { outbound, log: pino({ level: 'silent' }) })
}

function timers(): number {
  return process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length
}
