import { randomUUID } from 'node:crypto'
import type { AgUiEvent } from '@holdfast/protocol'
import { createParser } from 'eventsource-parser'

export type Answer = {
  readonly status: number
  readonly headers: Headers
  // Answers are asserted on, not relied on.
  readonly body: { readonly [key: string]: unknown }
}

/** One request; the body of the answer as JSON where it is JSON. */
export async function request(
  url: string,
  init: RequestInit & { json?: unknown } = {},
): Promise<Answer> {
  const { json, ...rest } = init
  const response = await fetch(url, {
    redirect: 'manual',
    ...rest,
    ...(json === undefined
      ? {}
      : {
          method: rest.method ?? 'POST',
          body: JSON.stringify(json),
          headers: { 'content-type': 'application/json', ...rest.headers },
        }),
  })
  const text = await response.text()
  const isJson = /json/.test(response.headers.get('content-type') ?? '')
  return {
    status: response.status,
    headers: response.headers,
    body: isJson && text ? JSON.parse(text) : { text },
  }
}

export type Sent = { readonly runId: string; readonly conversationId: string }

/** POST /runs, which must be accepted. */
export async function send(
  url: string,
  message: unknown,
  more: Record<string, unknown> = {},
  headers: Record<string, string> = {},
): Promise<Sent> {
  const answer = await request(`${url}/runs`, {
    json: { message, clientTurnId: randomUUID(), ...more },
    headers,
  })
  if (answer.status !== 202) {
    throw new Error(`POST /runs was answered ${answer.status}: ${JSON.stringify(answer.body)}`)
  }
  return {
    runId: String(answer.body['runId']),
    conversationId: String(answer.body['conversationId']),
  }
}

export type Frame = { readonly id: number | null; readonly event: AgUiEvent }

export type Reading = {
  /** `after` as query parameter, or `lastEventId` as header; neither: a prelude. */
  after?: number
  lastEventId?: number | string
  headers?: Record<string, string>
  /** Leave as soon as this is true of what was read. */
  until?: (frames: readonly Frame[]) => boolean
  /** Called with each frame as it arrives. */
  onFrame?: (frame: Frame) => void
  signal?: AbortSignal
}

/** Reads one connection of a run's events to its end, or until told to leave. */
export async function readEvents(
  url: string,
  runId: string,
  reading: Reading = {},
): Promise<Frame[]> {
  const query = reading.after === undefined ? '' : `?after=${reading.after}`
  const leave = new AbortController()
  const response = await fetch(`${url}/runs/${runId}/events${query}`, {
    headers: {
      accept: 'text/event-stream',
      ...(reading.lastEventId === undefined ? {} : { 'last-event-id': `${reading.lastEventId}` }),
      ...reading.headers,
    },
    signal: reading.signal ? AbortSignal.any([leave.signal, reading.signal]) : leave.signal,
  })
  if (response.status === 204) return []
  if (response.status !== 200 || !response.body) {
    throw new Error(`events were answered ${response.status}: ${await response.text()}`)
  }
  const frames: Frame[] = []
  const parser = createParser({
    onEvent({ id, data }) {
      const frame = { id: id === undefined ? null : Number(id), event: JSON.parse(data) }
      frames.push(frame)
      reading.onFrame?.(frame)
    },
  })
  const decoder = new TextDecoder()
  try {
    for await (const chunk of response.body) {
      parser.feed(decoder.decode(chunk, { stream: true }))
      if (reading.until?.(frames)) break
    }
  } finally {
    leave.abort()
  }
  return frames
}

/** The whole log of a run, followed to its terminal event over as many connections as it takes. */
export async function readLog(url: string, runId: string, after = 0): Promise<Frame[]> {
  const frames: Frame[] = []
  for (;;) {
    const last = frames.at(-1)
    if (last && isTerminalEvent(last.event)) return frames
    frames.push(...(await readEvents(url, runId, { after: last?.id ?? after })))
  }
}

export function isTerminalEvent(event: AgUiEvent): boolean {
  return event.type === 'RUN_FINISHED' || event.type === 'RUN_ERROR'
}
