import type { AgUiEvent } from '@holdfast/protocol'
import { AgentFailure, type AgentResult, type AgentRun } from '../agent.ts'
import { DONE, eventValues, isWhole } from '../upstream/event-values.ts'
import { jsonOf } from '../upstream/json-body.ts'
import type { NotedLog } from '../upstream/noted-log.ts'
import type { UpstreamAnswer } from '../upstream/request-upstream.ts'
import { createSseReader, type SseCaps } from '../upstream/sse-reader.ts'
import type { Watchdog } from '../upstream/watchdog.ts'
import { eventsOfJson } from './json-answer.ts'
import {
  createEventNormaliser,
  type EventNormaliser,
  type UpstreamEnding,
} from './normalise-events.ts'

export type Reading = { run: AgentRun; log: NotedLog; watchdog: Watchdog; caps: SseCaps }

/**
 * Writes what the answer says to the log while it comes.
 * @throws AgentFailure; what was said until then stays said
 */
export async function readAnswer(answer: UpstreamAnswer, reading: Reading): Promise<AgentResult> {
  const normaliser = createEventNormaliser(reading.run)
  try {
    const result = answer.isStream
      ? await readStream(answer, normaliser, reading)
      : await readJson(answer, normaliser, reading)
    if (result) return result
    throw new AgentFailure('upstream_truncated', 'the upstream ended without an ending', {
      retryable: true,
    })
  } catch (error) {
    if (error instanceof AgentFailure && !reading.run.signal.aborted) {
      await reading.log.write(normaliser.flush())
    }
    throw error
  }
}

async function readStream(
  answer: UpstreamAnswer,
  normaliser: EventNormaliser,
  reading: Reading,
): Promise<AgentResult | undefined> {
  const reader = createSseReader(reading.caps)
  for await (const bytes of answer.bytes()) {
    const { data, failure } = reader.push(bytes)
    const result = await pushAll(valuesOf(data, reading.run), normaliser, reading)
    if (result) return result
    if (failure) throw failure
  }
  // Some servers leave out the last blank line; a half event instead of one is a cut.
  const rest = valuesOf(reader.end().filter(isWhole), reading.run)
  return pushAll(rest, normaliser, reading)
}

async function readJson(
  answer: UpstreamAnswer,
  normaliser: EventNormaliser,
  reading: Reading,
): Promise<AgentResult | undefined> {
  const json = await jsonOf(answer.bytes(), reading.caps.eventBytesMax)
  return pushAll(eventsOfJson(json, reading.run.runId), normaliser, reading)
}

/** Writes what the values mean; gives the result once the upstream has ended its run. */
async function pushAll(
  values: Iterable<unknown>,
  normaliser: EventNormaliser,
  { run, log, watchdog }: Reading,
): Promise<AgentResult | undefined> {
  const events: AgUiEvent[] = []
  let progress = false
  let ending: UpstreamEnding | undefined
  try {
    for (const value of values) {
      const normalised = normaliser.push(value)
      events.push(...normalised.events)
      progress ||= normalised.progress
      ending = normalised.ending
      if (ending) break
    }
  } finally {
    // What came in order before a bad event stays said. Our own log's time is not the upstream's.
    watchdog.pause()
    await log.write(events)
    watchdog.resume()
  }
  if (progress) watchdog.progress()
  if (ending?.kind !== 'failed') return ending?.result
  run.log.warn({ upstream: { message: ending.message, code: ending.code } }, 'upstream error')
  throw new AgentFailure('upstream_error', 'the upstream ended its run with an error', {
    usage: ending.usage,
  })
}

/** What the payloads say; AG-UI knows no `[DONE]`. */
function* valuesOf(data: Iterable<string>, run: AgentRun): Iterable<unknown> {
  for (const value of eventValues(data, run.log)) {
    if (value === DONE) run.log.debug('upstream sent [DONE], which is not of AG-UI')
    else yield value
  }
}
