import type { AgUiEvent } from '@holdfast/protocol'
import { within } from '@holdfast/std'
import { AgentFailure, type AgentRun } from '../agent.ts'
import { DONE, eventValues, isWhole } from '../upstream/event-values.ts'
import { jsonOf } from '../upstream/json-body.ts'
import type { NotedLog } from '../upstream/noted-log.ts'
import type { UpstreamAnswer } from '../upstream/request-upstream.ts'
import { createSseReader, type SseCaps } from '../upstream/sse-reader.ts'
import type { Watchdog } from '../upstream/watchdog.ts'
import { chatPiece } from './chat-piece.ts'
import type { Completion, Said } from './completion.ts'

/** Late words and the usage come soon behind the reason of the end, or not at all. */
const LATE_MS_MAX = 2000

/** An answer that the model itself ended. */
export type Ended = Said & { readonly finishReason: string }

export type Reading = {
  run: AgentRun
  log: NotedLog
  watchdog: Watchdog
  caps: SseCaps
  completion: Completion
}

/**
 * Writes the model's answer to the log while it comes. It counts only if the model said why it ended; `[DONE]` or a
 * clean end alone may be a proxy's.
 * @throws AgentFailure; what was said until then stays said
 */
export async function readCompletion(answer: UpstreamAnswer, reading: Reading): Promise<Ended> {
  try {
    await (answer.isStream ? readStream(answer, reading) : readJson(answer, reading))
    return await ended(reading)
  } catch (error) {
    const { completion, log, run } = reading
    if (error instanceof AgentFailure && !run.signal.aborted) await log.write(completion.flush())
    throw error
  }
}

async function readStream(answer: UpstreamAnswer, reading: Reading): Promise<void> {
  const { completion, caps, run } = reading
  const reader = createSseReader(caps)
  const source = answer.bytes()[Symbol.asyncIterator]()
  for (;;) {
    const next = await nextBytes(source, completion)
    if (!next || next.done) break
    const { data, failure } = reader.push(next.value)
    if (await pushAll(eventValues(data, run.log), reading)) return
    if (failure) throw failure
  }
  // Some servers leave out the last blank line; half a chunk instead of one is a cut.
  await pushAll(eventValues(reader.end().filter(isWhole), run.log), reading)
}

/** `undefined`: nothing more is to come. Once the model has said how it ended, a broken connection is an end too. */
async function nextBytes(
  source: AsyncIterator<Uint8Array>,
  completion: Completion,
): Promise<IteratorResult<Uint8Array> | undefined> {
  if (completion.finishReason === undefined) return await source.next()
  return await within(
    LATE_MS_MAX,
    source.next().catch(() => undefined),
  )
}

async function readJson(answer: UpstreamAnswer, reading: Reading): Promise<void> {
  const json = await jsonOf(answer.bytes(), reading.caps.eventBytesMax)
  await pushAll([json], reading)
}

/** Writes what the values mean; true once the server said that nothing more comes. */
async function pushAll(values: Iterable<unknown>, reading: Reading): Promise<boolean> {
  const { completion, log, watchdog } = reading
  const events: AgUiEvent[] = []
  let isDone = false
  try {
    for (const value of values) {
      if (value === DONE) {
        isDone = true
        break
      }
      events.push(...completion.push(chatPiece(value)))
    }
  } finally {
    // What came before a bad chunk stays said. Our own log's time is not the model's.
    watchdog.pause()
    await log.write(events)
    watchdog.resume()
  }
  if (events.length > 0) watchdog.progress()
  return isDone
}

async function ended({ completion, log }: Reading): Promise<Ended> {
  const { finishReason } = completion
  if (finishReason === undefined) {
    throw new AgentFailure('upstream_truncated', 'the answer of the model has no ending', {
      retryable: true,
    })
  }
  const { events, said } = completion.end()
  await log.write(events)
  return { ...said, finishReason }
}
