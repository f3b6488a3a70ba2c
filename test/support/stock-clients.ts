import { defaultApplyEvents, HttpAgent, type HttpAgentFetchFn, verifyEvents } from '@ag-ui/client'
import type { RunAgentInput } from '@ag-ui/core'
import type { AgUiEvent, Message } from '@holdfast/protocol'
import { createParser } from 'eventsource-parser'
import { from, lastValueFrom } from 'rxjs'
import { scan } from 'rxjs/operators'
import { isTerminalEvent } from './api.ts'

/** What a client has on its screen. */
export type Held = { messages: Message[]; state: unknown }

/**
 * What AG-UI's own client holds after `events`; rejects where its verifier does. The events are
 * cloned, as if they came over a wire, since the client changes what it gets.
 */
export async function stockClientHolds(
  events: readonly AgUiEvent[],
  before: Partial<Held> = {},
): Promise<Held> {
  const held: Held = { messages: before.messages ?? [], state: before.state ?? {} }
  const agent = new HttpAgent({ url: 'http://127.0.0.1/', initialMessages: held.messages })
  const input: RunAgentInput = {
    threadId: 't',
    runId: 'r',
    messages: [],
    tools: [],
    context: [],
    state: held.state,
  }
  const verified = from(events.map((event) => structuredClone(event))).pipe(verifyEvents())
  const held$ = defaultApplyEvents(input, verified, agent, []).pipe(
    scan(
      (now, { messages, state }) => ({
        messages: messages ?? now.messages,
        state: state === undefined ? now.state : state,
      }),
      held,
    ),
  )
  return lastValueFrom(held$, { defaultValue: held })
}

export type Resuming = {
  readonly fetch: HttpAgentFetchFn
  /** The `Last-Event-ID` of each connection, the POST's being null. */
  readonly connections: (string | null)[]
}

/**
 * A `fetch` for the stock client that survives cuts: it follows the run of its POST over as many
 * connections as it takes and hands the events on as one response. `urlOf` says where events are.
 */
export function resumingFetch(urlOf: (runId: string) => string): Resuming {
  const connections: (string | null)[] = []
  async function resuming(url: string, init: RequestInit): Promise<Response> {
    connections.push(null)
    const first = await fetch(url, init)
    const runId = first.headers.get('x-holdfast-run-id')
    if (!first.ok || !first.body || !runId) return first
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>()
    const again = (last: string) => {
      connections.push(last)
      return fetch(urlOf(runId), {
        headers: { 'last-event-id': last },
        signal: init.signal ?? null,
      })
    }
    forward(first, again, writable.getWriter()).catch(() => undefined)
    return new Response(readable, { headers: { 'content-type': 'text/event-stream' } })
  }
  return { fetch: resuming, connections }
}

/**
 * A `fetch` whose first answer ends after so many bytes. Not with an error: the stock client lets
 * that one escape a second time, as a rejection that nobody can handle.
 */
export function losingFetch(bytes: number): { readonly fetch: HttpAgentFetchFn } {
  let left = bytes
  return {
    async fetch(url, init) {
      const response = await fetch(url, init)
      if (left <= 0 || !response.body) return response
      const lossy = new TransformStream<Uint8Array, Uint8Array>({
        transform(chunk, controller) {
          controller.enqueue(chunk.subarray(0, left))
          left -= chunk.length
          if (left <= 0) controller.terminate()
        },
      })
      response.body.pipeTo(lossy.writable).catch(() => undefined)
      return new Response(lossy.readable, response)
    },
  }
}

async function forward(
  first: Response,
  again: (last: string) => Promise<Response>,
  writer: WritableStreamDefaultWriter<Uint8Array>,
): Promise<void> {
  let last = ''
  let ended = false
  const waiting: string[] = []
  const parser = createParser({
    onEvent({ id, data }) {
      if (id === undefined || Number(id) <= Number(last || 0)) return
      last = id
      ended = isTerminalEvent(JSON.parse(data) as AgUiEvent)
      waiting.push(`data: ${data}\n\n`)
    },
  })
  const encoder = new TextEncoder()
  for (let response = first; ; response = await again(last)) {
    parser.reset()
    const decoder = new TextDecoder()
    try {
      for await (const chunk of response.body ?? []) {
        parser.feed(decoder.decode(chunk, { stream: true }))
        for (const text of waiting.splice(0)) await writer.write(encoder.encode(text))
      }
    } catch (error) {
      // A cut is what this is for; anything else is none of the network's.
      if (!(error instanceof TypeError)) throw error
    }
    if (ended) return writer.close()
  }
}
