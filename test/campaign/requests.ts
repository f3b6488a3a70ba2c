import { wait } from '@holdfast/std'
import { type Answer, request } from '../support/api.ts'
import type { Random } from '../support/seeded.ts'
import type { Histories, Turn, TurnAnswer } from './history.ts'

/** One user's way to the service, which fails often and writes everything down. */
export type User = {
  readonly name: string
  readonly token: string
  readonly urls: () => readonly string[]
  readonly random: Random
  readonly histories: Histories
  readonly notifyUrl: () => string | null
  /** Aborts when clients may not wait any longer. */
  readonly patience: AbortSignal
}

type TurnOptions = {
  message: string
  agent: string
  onActive: Turn['onActive']
  conversationId?: string
}

const ANSWER_MS = 8000
/** Refusals that say nothing about the turn, only about the moment. */
const TEMPORARY = new Set([429, 503])

export type Sent = {
  readonly runId: string | null
  readonly conversationId: string | null
  /** The same turn once more, whatever has become of its run. */
  again(): Promise<unknown>
}

/** Sends a turn again and again until somebody answers; some are sent twice although one answer would do. */
export async function sendTurn(user: User, options: TurnOptions): Promise<Sent> {
  const { random } = user
  const turn: Turn = {
    user: user.name,
    clientTurnId: `turn ${random.whole(0, 2 ** 31)}-${user.histories.turns.length}`,
    message: options.message,
    agent: options.agent,
    onActive: options.onActive,
    answers: [],
    unanswered: 0,
  }
  user.histories.turns.push(turn)
  const notifyUrl = user.notifyUrl()
  const json = {
    clientTurnId: turn.clientTurnId,
    message: turn.message,
    agent: turn.agent,
    onActive: turn.onActive,
    ...(options.conversationId ? { conversationId: options.conversationId } : {}),
    ...(notifyUrl ? { notifyUrl } : {}),
  }
  const once = () => tellOnce(user, turn, json)
  for (;;) {
    const [first, second] = await Promise.all(random.chance(0.2) ? [once(), once()] : [once()])
    const answer = first ?? second
    if (answer) {
      const { runId, conversationId } = answer
      return { runId, conversationId, again: once }
    }
    if (user.patience.aborted) return { runId: null, conversationId: null, again: once }
    await wait(random.whole(50, 500))
  }
}

async function tellOnce(user: User, turn: Turn, json: object): Promise<TurnAnswer | null> {
  const sentAtMs = Date.now()
  const answer = await ask(user, '/runs', json)
  if (!answer || answer.status >= 500 || TEMPORARY.has(answer.status)) {
    turn.unanswered += 1
    return null
  }
  const { status, body } = answer
  const told: TurnAnswer = {
    status,
    runId: textOf(body['runId']),
    conversationId: textOf(body['conversationId']),
    code: textOf(body['code']),
    activeRunId: textOf(body['activeRunId']),
    sentAtMs,
    atMs: Date.now(),
  }
  turn.answers.push(told)
  return told
}

/** Asks for the run's end until somebody answers. */
export async function cancelRun(user: User, runId: string): Promise<void> {
  while (!user.patience.aborted) {
    const sentAtMs = Date.now()
    const answer = await ask(user, `/runs/${runId}/cancel`, { reason: 'campaign' })
    if (answer && answer.status < 500 && !TEMPORARY.has(answer.status)) {
      const state = textOf(answer.body['state']) ?? ''
      const { status } = answer
      user.histories.cancels.push({ runId, status, state, sentAtMs, atMs: Date.now() })
      return
    }
    await wait(user.random.whole(50, 500))
  }
}

/** Looks at a run until somebody answers. */
export async function viewRun(user: User, runId: string, afterTheEnd: boolean): Promise<void> {
  while (!user.patience.aborted) {
    const answer = await ask(user, `/runs/${runId}`)
    if (answer?.status === 200) {
      const { state, outcome, finishedAt, sequence } = answer.body
      user.histories.views.push({
        runId,
        state: String(state),
        outcome: textOf(outcome),
        finishedAt: textOf(finishedAt),
        sequence: Number(sequence),
        atMs: Date.now(),
        afterTheEnd,
      })
      return
    }
    if (answer?.status === 404) {
      const missing = { state: 'unknown', outcome: null, finishedAt: null, sequence: 0 }
      user.histories.views.push({ runId, ...missing, atMs: Date.now(), afterTheEnd })
      return
    }
    await wait(user.random.whole(50, 300))
  }
}

/** Looks at a run that is somebody else's. */
export async function trespass(user: User, runId: string): Promise<void> {
  const answer = await ask(user, `/runs/${runId}`)
  if (!answer || answer.status >= 500) return
  user.histories.trespasses.push({ runId, user: user.name, status: answer.status })
}

/** Null: nobody answered in time. */
async function ask(user: User, path: string, json?: object): Promise<Answer | null> {
  const urls = user.urls()
  if (urls.length === 0) return null
  try {
    return await request(`${user.random.pick(urls)}${path}`, {
      headers: { authorization: `Bearer ${user.token}` },
      signal: AbortSignal.timeout(ANSWER_MS),
      ...(json ? { json } : {}),
    })
  } catch {
    return null
  }
}

function textOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null
}
