import type { AgUiEvent, Message } from '@holdfast/protocol'
import { emptyHistories, type Stored, type StoredRun, turnKey } from '../history.ts'
import type { Evidence } from './all.ts'

type Mutable<T> =
  T extends ReadonlyMap<infer K, infer V>
    ? Map<K, Mutable<V>>
    : T extends (...args: never[]) => unknown
      ? T
      : T extends object
        ? { -readonly [K in keyof T]: Mutable<T[K]> }
        : T

const RUNNER = 'runner-1'
const HEIR = 'runner-2'

/**
 * What a flawless campaign of two turns leaves behind, to be spoilt by whoever wants to know whether the checker sees
 * it: the first turn was taken over once, the second was stopped while it was queued.
 */
export function healthyEvidence(): Mutable<Evidence> {
  const histories = emptyHistories()
  const first = run('run-1', 1, 'succeeded', 'success', 2, 1000)
  const second = run('run-2', 2, 'stopped', 'cancelled', 0, 5000)
  const logs = new Map([
    [first.runId, log(first, answeredLog())],
    [second.runId, log(second, stoppedLog())],
  ])
  const messages = [
    stored('run-1', { id: 'u1', role: 'user', content: 'one' }),
    stored('run-1', { id: 'm2', role: 'assistant', content: 'e2.0 e2.end' }),
    stored('run-2', { id: 'u2', role: 'user', content: 'two' }),
  ]
  const evidence: Evidence = {
    histories,
    counted: [{ runner: RUNNER, staleWrites: 1 }],
    sinks: ['everything'],
    stored: {
      runs: new Map([first, second].map((each) => [each.runId, each])),
      logs,
      messages: new Map([['c', messages]]),
      attempts: new Map([['run-1', attempts()]]),
      turns: new Map([
        [turnKey('ada', 't1'), 'run-1'],
        [turnKey('ada', 't2'), 'run-2'],
      ]),
      notifications: new Map([
        ['run-1', ['n1']],
        ['run-2', ['n2']],
      ]),
      staleWrites: [
        { runId: 'run-1', epoch: 1, currentEpoch: 2, runner: RUNNER, operation: 'append' },
      ],
      notifies: true,
    },
  }
  witness(evidence)
  return evidence as Mutable<Evidence>
}

function run(
  runId: string,
  turn: number,
  state: string,
  outcome: string,
  epoch: number,
  createdAtMs: number,
): StoredRun {
  const times = { createdAtMs, startedAtMs: epoch ? createdAtMs + 1 : null }
  const ending = { state, outcome, errorCode: null, finishedAtMs: createdAtMs + 3000 }
  const sequence = epoch ? answeredLog().length : stoppedLog().length
  const of = { conversationId: 'c', user: 'ada', agent: 'fast' }
  return { runId, turn, epoch, sequence, ...of, ...times, ...ending }
}

type Line = [epoch: number, event: object]

function answeredLog(): Line[] {
  const user = { id: 'u1', role: 'user', content: 'one' }
  const begins = { type: 'TEXT_MESSAGE_START', role: 'assistant' }
  return [
    [0, { type: 'RUN_STARTED', threadId: 'c', runId: 'run-1', input: input([user]) }],
    [1, { type: 'CUSTOM', name: 'holdfast.attempt', value: { epoch: 1, reason: 'first' } }],
    [1, { ...begins, messageId: 'm1' }],
    [1, { type: 'TEXT_MESSAGE_CONTENT', messageId: 'm1', delta: 'e1.0 ' }],
    [2, { type: 'TEXT_MESSAGE_END', messageId: 'm1' }],
    [2, { type: 'CUSTOM', name: 'holdfast.attempt', value: { epoch: 2, reason: 'takeover' } }],
    [2, { type: 'MESSAGES_SNAPSHOT', messages: [user] }],
    [2, { ...begins, messageId: 'm2' }],
    [2, { type: 'TEXT_MESSAGE_CONTENT', messageId: 'm2', delta: 'e2.0 ' }],
    [2, { type: 'TEXT_MESSAGE_CONTENT', messageId: 'm2', delta: 'e2.end' }],
    [2, { type: 'TEXT_MESSAGE_END', messageId: 'm2' }],
    [2, finished('run-1', 'success')],
  ]
}

function stoppedLog(): Line[] {
  const user = { id: 'u2', role: 'user', content: 'two' }
  return [
    [0, { type: 'RUN_STARTED', threadId: 'c', runId: 'run-2', input: input([user]) }],
    [0, finished('run-2', 'cancelled')],
  ]
}

function input(messages: object[]) {
  return { threadId: 'c', runId: 'r', messages, tools: [], context: [], state: {} }
}

function finished(runId: string, type: string) {
  return { type: 'RUN_FINISHED', threadId: 'c', runId, outcome: { type } }
}

function log({ createdAtMs }: StoredRun, lines: readonly Line[]) {
  return lines.map(([epoch, event], at) => ({
    sequence: at + 1,
    epoch,
    json: JSON.stringify(event),
    event: event as AgUiEvent,
    atMs: createdAtMs + at,
  }))
}

function stored(runId: string, message: object) {
  return { runId, status: 'complete', message: message as Message }
}

function attempts() {
  const of = { runId: 'run-1' }
  const lost = { outcome: 'lost', startedAtMs: 1001, endedAtMs: 2000 }
  const won = { outcome: 'succeeded', startedAtMs: 2000, endedAtMs: 4000 }
  return [
    { ...of, epoch: 1, runner: RUNNER, reason: 'first', ...lost },
    { ...of, epoch: 2, runner: HEIR, reason: 'takeover', ...won },
  ]
}

/** What everybody saw of it. */
function witness({ histories, stored }: Evidence): void {
  for (const [at, { runId, user, state, outcome, sequence, finishedAtMs }] of [
    ...stored.runs.values(),
  ].entries()) {
    const answer = { conversationId: 'c', code: null, activeRunId: null, sentAtMs: 0, atMs: 0 }
    histories.turns.push({
      user,
      clientTurnId: `t${at + 1}`,
      message: '',
      agent: 'fast',
      onActive: 'enqueue',
      answers: [
        { ...answer, status: 202, runId },
        { ...answer, status: 200, runId },
      ],
      unanswered: 1,
    })
    for (const reader of ['one', 'other']) {
      histories.readings.push(readingOf(stored, runId, reader))
    }
    const ending = { state, outcome, sequence, finishedAt: `${finishedAtMs}` }
    histories.views.push({ runId, ...ending, atMs: Number(finishedAtMs) + 1, afterTheEnd: true })
    const [eventId = ''] = stored.notifications.get(runId) ?? []
    const told = {
      sink: 'everything',
      eventId,
      runId,
      state,
      found: state,
      atMs: 9000,
      signed: true,
    }
    histories.deliveries.push({ ...told, answered: 500 }, { ...told, answered: 204 })
  }
  const request = { script: 'fast', runId: 'run-1', idempotencyKey: 'run-1', said: ['one'] }
  histories.asked.push({ ...request, epoch: 1, atMs: 1100, closedAtMs: () => 2500 })
  histories.asked.push({ ...request, epoch: 2, atMs: 2100, closedAtMs: () => 3900 })
  histories.cancels.push({ runId: 'run-2', status: 202, state: 'stopped', sentAtMs: 1, atMs: 2 })
  histories.trespasses.push({ runId: 'run-1', user: 'eve', status: 404 })
}

function readingOf({ logs }: Stored, runId: string, reader: string) {
  const frames = (logs.get(runId) ?? []).map(({ sequence, json }) => ({ id: sequence, data: json }))
  const from = 'start' as const
  return { runId, reader, from, frames, connections: 2, ended: true, complaints: [] }
}
