import {
  CancelReceipt,
  ConversationView,
  type CreateRunBody,
  emptyFold,
  type Fold,
  foldEvents,
  RunReceipt,
} from '@holdfast/protocol'
import { failureOf } from './failure.ts'
import { type Followed, followBatches } from './follow.ts'

type Headers = Readonly<Record<string, string>>

export type ClientOptions = {
  /** Where the service is, a path included, if there is one. */
  baseUrl: string
  /** Sent with every request; a function is asked before each, so that tokens may change. */
  headers?: Headers | (() => Headers | Promise<Headers>)
  fetch?: typeof globalThis.fetch
  /** After how long without a byte a stream is taken for dead and opened again; 30 s. */
  idleTimeoutMs?: number
}

/** One snapshot: its messages stand for the events up to `activeRun.sequence`. */
export type Conversation = ReturnType<typeof ConversationView.parse>

export type FoldedRun = { sequence: number; fold: Fold }

export type Client = {
  /** Starts a run, or finds it: the same `clientTurnId` again is the same run. */
  send(body: CreateRunBody, signal?: AbortSignal): Promise<RunReceipt>
  /** Asks for the run's end. Never too late: an ended run answers with its final state. */
  cancel(runId: string, reason?: string, signal?: AbortSignal): Promise<CancelReceipt>
  conversation(conversationId: string, signal?: AbortSignal): Promise<Conversation>
  /**
   * The run's events, each once and in order, through cut connections; ends after the terminal
   * event. Without `after` they begin with a prelude. Leaving the loop does not stop the run.
   */
  follow(
    runId: string,
    options?: { after?: number; signal?: AbortSignal },
  ): AsyncGenerator<Followed, void, undefined>
  /** What the run amounts to, again whenever something came; the last one has its `terminal`. */
  foldRun(
    runId: string,
    options?: { from?: FoldedRun; signal?: AbortSignal },
  ): AsyncGenerator<FoldedRun, void, undefined>
}

/** All methods throw HoldfastError where the service refuses. */
export function createClient(options: ClientOptions): Client {
  const base = options.baseUrl.replace(/\/+$/, '')
  const doFetch = options.fetch ?? globalThis.fetch

  async function headers(): Promise<Headers> {
    const given = typeof options.headers === 'function' ? await options.headers() : options.headers
    return given ?? {}
  }

  async function json(path: string, init: RequestInit, signal?: AbortSignal): Promise<unknown> {
    const response = await doFetch(base + path, {
      ...init,
      headers: { ...(await headers()), ...init.headers },
      ...(signal && { signal }),
    })
    if (!response.ok) throw await failureOf(response)
    return response.json()
  }

  function batches(runId: string, after: number | undefined, signal: AbortSignal | undefined) {
    const url = `${base}/runs/${encodeURIComponent(runId)}/events`
    return followBatches({
      headers,
      get: (all, ending) => doFetch(url, { headers: all, signal: ending }),
      idleTimeoutMs: options.idleTimeoutMs ?? 30_000,
      signal: signal ?? new AbortController().signal,
      ...(after !== undefined && { after }),
    })
  }

  return {
    async send(body, signal) {
      return RunReceipt.parse(await json('/runs', post(body), signal))
    },
    async cancel(runId, reason, signal) {
      const path = `/runs/${encodeURIComponent(runId)}/cancel`
      const body = reason === undefined ? {} : { reason }
      return CancelReceipt.parse(await json(path, post(body), signal))
    },
    async conversation(conversationId, signal) {
      const path = `/conversations/${encodeURIComponent(conversationId)}`
      return ConversationView.parse(await json(path, {}, signal))
    },
    async *follow(runId, { after, signal } = {}) {
      for await (const batch of batches(runId, after, signal)) yield* batch
    },
    async *foldRun(runId, { from, signal } = {}) {
      let { sequence, fold } = from ?? { sequence: 0, fold: emptyFold() }
      for await (const batch of batches(runId, from?.sequence, signal)) {
        fold = foldEvents(
          fold,
          batch.map(({ event }) => event),
        )
        sequence = batch.at(-1)?.sequence ?? sequence
        yield { sequence, fold }
      }
    },
  }
}

function post(body: unknown): RequestInit & { headers: Headers } {
  return {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json' },
    body: JSON.stringify(body),
  }
}
