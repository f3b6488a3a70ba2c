import type { AgUiEvent } from '@holdfast/protocol'
import { type Answer, request, send } from '../support/api.ts'
import { attach } from '../support/checker.ts'
import { type Holdfast, type HoldfastOptions, startHoldfast } from '../support/holdfast.ts'
import { type Exchange, opening, startUpstream, type Upstream } from '../support/upstream.ts'

/** What is said of an answer that its upstream has begun. */
export const BEGINNING = 'As far as it went. '

/** A Holdfast without runners, and a scripted upstream for them: each test starts the ones that it needs. */
export type Stage = AsyncDisposable & {
  readonly holdfast: Holdfast
  readonly upstream: Upstream
  readonly url: string
  /** A turn whose request has reached the upstream. */
  ask(message?: string, more?: Record<string, unknown>): Promise<Asked>
  /** The same, and the beginning of its answer can be read. */
  begin(message?: string, more?: Record<string, unknown>): Promise<Asked>
}

export type Asked = {
  readonly runId: string
  readonly conversationId: string
  readonly exchange: Exchange
}

export async function openStage(
  options: Omit<HoldfastOptions, 'agents' | 'runners'> = {},
): Promise<Stage> {
  await using cleanup = new AsyncDisposableStack()
  const upstream = cleanup.use(await startUpstream())
  const remote = { type: 'ag-ui', url: upstream.url }
  const agents = {
    remote,
    fragile: { ...remote, onLost: 'fail' },
    once: { ...remote, maxAttempts: 1 },
    demo: { type: 'demo' },
  }
  const holdfast = cleanup.use(
    await startHoldfast({ runners: 0, ...options, agents: { default: 'remote', agents } }),
  )

  async function ask(message = 'tell me', more: Record<string, unknown> = {}): Promise<Asked> {
    const n = upstream.exchanges.length
    const sent = await send(holdfast.url, message, more)
    return { ...sent, exchange: await upstream.exchange(n) }
  }

  async function begin(message?: string, more?: Record<string, unknown>): Promise<Asked> {
    const asked = await ask(message, more)
    asked.exchange.say(...opening(asked.exchange, BEGINNING))
    await attach(holdfast.url, asked.runId).seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
    return asked
  }

  const ending = cleanup.move()
  return {
    holdfast,
    upstream,
    get url() {
      return holdfast.url
    },
    ask,
    begin,
    [Symbol.asyncDispose]: () => ending.disposeAsync(),
  }
}

/** POST /runs into a conversation, which may be busy. */
export async function sendTo(
  url: string,
  conversationId: string,
  more: Record<string, unknown> = {},
): Promise<Answer> {
  const json = { message: 'and then?', clientTurnId: crypto.randomUUID(), conversationId, ...more }
  return await request(`${url}/runs`, { json })
}

/** More of the message that `begin` left open. */
export function text(delta: string): AgUiEvent[] {
  return [{ type: 'TEXT_MESSAGE_CONTENT', messageId: 'm1', delta }] as AgUiEvent[]
}
