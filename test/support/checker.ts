import { defaultApplyEvents, HttpAgent, verifyEvents } from '@ag-ui/client'
import { createClient } from '@holdfast/client'
import { type AgUiEvent, emptyFold, foldEvents, type Message } from '@holdfast/protocol'
import { violations } from '@holdfast/store'
import { from, lastValueFrom } from 'rxjs'
import { scan } from 'rxjs/operators'
import { expect } from 'vitest'
import { type Frame, isTerminalEvent, readLog, request } from './api.ts'
import type { Holdfast } from './holdfast.ts'

/** What AG-UI's own client holds after a stream. */
export type Held = { messages: Message[]; state: unknown }

/**
 * AG-UI's own verifier and reducer over events as they come; one pipeline, whatever happens to the connections
 * below. Rejects where the verifier does.
 */
export async function clientHolds(
  events: Iterable<AgUiEvent> | AsyncIterable<AgUiEvent>,
  before: Partial<Held> = {},
): Promise<Held> {
  const held: Held = { messages: before.messages ?? [], state: before.state ?? {} }
  const agent = new HttpAgent({ url: 'http://127.0.0.1/', initialMessages: held.messages })
  const input = { threadId: 't', runId: 'r', messages: [], tools: [], context: [] }
  // The client changes what it gets, so it gets copies.
  const verified = from(copies(events)).pipe(verifyEvents())
  return lastValueFrom(
    defaultApplyEvents({ ...input, state: held.state }, verified, agent, []).pipe(
      scan((now, { messages, state }) => {
        return {
          messages: messages ?? now.messages,
          state: state === undefined ? now.state : state,
        }
      }, held),
    ),
    { defaultValue: held },
  )
}

async function* copies(events: Iterable<AgUiEvent> | AsyncIterable<AgUiEvent>) {
  for await (const event of events) yield structuredClone(event)
}

export type Attached = {
  /** What came so far. */
  readonly events: readonly AgUiEvent[]
  /** Resolves when an event came for which this is true; the ones before count. */
  seen(what: (event: AgUiEvent, at: number) => boolean): Promise<void>
  /** What the stock client holds at the end; rejects if its verifier refused anything. */
  readonly held: Promise<Held>
}

/** Attaches a reader that reconnects, with the stock client's pipeline behind it, from event 1 to the end. */
export function attach(url: string, runId: string): Attached {
  const events: AgUiEvent[] = []
  const waiting = new Set<() => void>()
  async function* follow() {
    for await (const { event } of createClient({ baseUrl: url }).follow(runId, { after: 0 })) {
      events.push(event)
      for (const wake of waiting) wake()
      yield event
    }
  }
  const held = clientHolds(follow())
  held.catch(() => undefined)
  return {
    events,
    held,
    async seen(what) {
      while (!events.some(what)) {
        const { promise, resolve, reject } = Promise.withResolvers<void>()
        waiting.add(resolve)
        held.then(() => reject(new Error('the stream ended without it')), reject)
        await promise.finally(() => waiting.delete(resolve))
      }
    },
  }
}

export type Attempt = {
  epoch: number
  runner: string
  startedAt: string
  endedAt: string | null
  outcome: string | null
}

export type Checked = {
  log: readonly Frame[]
  run: {
    runId: string
    conversationId: string
    state: string
    outcome: string | null
    epoch: number
    attemptsUsed: number
    startedAt: string | null
    finishedAt: string | null
    error: { code: string } | null
    attempts: Attempt[]
  }
  /** What is stored of this run's turn. */
  messages: readonly { message: Message; status: string }[]
  text: string
}

/**
 * Follows a run to its end and holds everything that can be asked about it against each other: the log against
 * its own rules and AG-UI's verifier, its fold against the stored messages and the stock client's, the terminal
 * event against the record.
 */
export async function checkRun(url: string, runId: string): Promise<Checked> {
  const log = await readLog(url, runId)
  const events = log.map((frame) => frame.event)
  expect(log.map((frame) => frame.id)).toEqual(log.map((_, at) => at + 1))
  expect(events.map(isTerminalEvent).indexOf(true)).toBe(events.length - 1)
  const run = (await request(`${url}/runs/${runId}`)).body as unknown as Checked['run'] & {
    sequence: number
  }
  expect(run.sequence).toBe(log.length)
  expect(run.state).toBe(stateOf(events.at(-1)))
  const conversation = (await request(`${url}/conversations/${run.conversationId}`)).body
  const stored = conversation['messages'] as unknown as {
    runId: string
    message: Message
    status: string
  }[]
  const first = stored.findIndex((entry) => entry.runId === runId)
  const before = stored.slice(0, first).map((entry) => entry.message)
  const mine = stored.filter((entry) => entry.runId === runId)
  const fold = foldEvents({ ...emptyFold(), messages: before }, events)
  expect(fold.open).toEqual([])
  const own = fold.messages.slice(before.length)
  expect(mine.map((entry) => entry.message)).toEqual(own)
  const held = await clientHolds(events, { messages: before })
  expect(held.messages).toEqual(fold.messages)
  expect(held.state).toEqual(fold.state ?? {})
  return { log, run, messages: mine, text: textOf(own) }
}

/**
 * After a test: every run there is, checked, and the database asked about its invariants. After one that failed
 * nothing is waited for, since a run that does not end may be why.
 */
export async function checkAll(
  holdfast: Holdfast,
  { task }: { task: { result?: { state: string } | undefined } },
): Promise<void> {
  if (task.result?.state === 'fail') return
  const { body } = await request(`${holdfast.url}/runs?limit=100`)
  for (const { runId } of body['runs'] as unknown as { runId: string }[]) {
    await checkRun(holdfast.url, runId)
  }
  expect(await violations(holdfast.store)).toEqual([])
}

/** The assistant's words. */
export function textOf(messages: readonly Message[]): string {
  return messages
    .flatMap((message) =>
      message.role === 'assistant' && typeof message.content === 'string' ? message.content : [],
    )
    .join('')
}

function stateOf(event: AgUiEvent | undefined): string {
  if (event?.type === 'RUN_ERROR') return 'failed'
  const { outcome } = event as { outcome?: { type: string } }
  return outcome?.type === 'cancelled' ? 'stopped' : 'succeeded'
}
