import type { AgUiEvent } from '@holdfast/protocol'
import { AgentFailure, type AgentRun } from '../agent.ts'
import { type NotedLog, notedLog, withoutRetry } from '../upstream/noted-log.ts'
import { connectionBroke, type UpstreamAnswer } from '../upstream/request-upstream.ts'
import { SSE_CAPS, type SseCaps } from '../upstream/sse-reader.ts'
import { createWatchdog, type Watchdog } from '../upstream/watchdog.ts'
import { recordedRun } from './recorded-run.ts'
import { runOf, type UpstreamCase } from './upstream-cases.ts'

export type Reading = { run: AgentRun; log: NotedLog; watchdog: Watchdog; caps: SseCaps }

export type ReadAnswer = (answer: UpstreamAnswer, reading: Reading) => Promise<unknown>

/** What was written to the log, and how it ended: with the upstream's own ending or with a failure. */
export type ReadOutcome = { events: AgUiEvent[]; result?: unknown; failure?: AgentFailure }

/** Can be told without a connection: the head is a good one, and no clock decides. */
export function isReadable({ response = {}, failure }: UpstreamCase): boolean {
  const { status = 200, headers = {} } = response
  if (status !== 200 || headers['content-encoding']) return false
  if (failure?.code === 'upstream_timeout' || failure?.code === 'stalled') return false
  return (
    isJson(headers) || (headers['content-type'] ?? 'text/event-stream').includes('event-stream')
  )
}

/** Has an agent read these parts of a body as if they came over a connection, which then ends or breaks. */
export async function readParts(
  parts: readonly Uint8Array[],
  expected: UpstreamCase,
  read: ReadAnswer,
  ending: 'end' | 'break' = endingOf(expected),
): Promise<ReadOutcome> {
  const run = recordedRun(runOf(expected))
  const log = notedLog(run)
  const watchdog = createWatchdog({ idleTimeoutMs: 600_000, progressTimeoutMs: 600_000 }, () => {})
  const answer = {
    isStream: !isJson(expected.response?.headers),
    bytes: () => bodyOf(parts, ending),
  }
  try {
    const caps = expected.caps ?? SSE_CAPS
    return { events: run.events, result: await read(answer, { run, log, watchdog, caps }) }
  } catch (error) {
    const failure = log.emitted ? withoutRetry(error) : error
    if (!(failure instanceof AgentFailure)) throw error
    return { events: run.events, failure }
  } finally {
    watchdog.stop()
  }
}

function endingOf({ response }: UpstreamCase): 'end' | 'break' {
  return response?.ending === 'reset' || response?.ending === 'cut' ? 'break' : 'end'
}

async function* bodyOf(parts: readonly Uint8Array[], ending: 'end' | 'break') {
  yield* parts
  if (ending === 'break') throw connectionBroke(new Error('other side closed'))
}

function isJson(headers: Record<string, string> = {}): boolean {
  return (headers['content-type'] ?? '').startsWith('application/json')
}
