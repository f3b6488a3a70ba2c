import type { AgUiEvent, OpenAiAgentSpec, TokenUsage } from '@holdfast/protocol'
import { within } from '@holdfast/std'
import { AgentFailure, type AgentRun } from '../agent.ts'
import type { Outbound } from '../outbound.ts'
import type { RunIds } from '../run-ids.ts'
import { DONE, eventValues, isWhole } from '../upstream/event-values.ts'
import { jsonOf } from '../upstream/json-body.ts'
import type { NotedLog } from '../upstream/noted-log.ts'
import { requestUpstream, type UpstreamAnswer } from '../upstream/request-upstream.ts'
import { createSseReader, SSE_CAPS, type SseCaps } from '../upstream/sse-reader.ts'
import type { Watchdog } from '../upstream/watchdog.ts'
import { chatPiece } from './chat-piece.ts'
import { chatRequest, type Question } from './chat-request.ts'
import { type Completion, createCompletion, type Said } from './completion.ts'

/** What came of one request to the model. */
export type Answer = Said & {
  readonly finishReason: string
  readonly usage: TokenUsage | undefined
}

export type AskDeps = {
  readonly spec: OpenAiAgentSpec
  readonly outbound: Outbound
  readonly run: AgentRun
  readonly ids: RunIds
  readonly log: NotedLog
  readonly caps?: SseCaps | undefined
}

/** Late words and the usage come soon behind the reason of the end, or not at all. */
const LATE_MS_MAX = 2000

/**
 * Asks the model once and writes its answer to the log while it comes. The answer counts only if the model said why it
 * ended; `[DONE]` or a clean end alone may be a proxy's.
 * @throws AgentFailure, with what was used; what was said until then stays said
 */
export async function askModel(deps: AskDeps, question: Question): Promise<Answer> {
  const { spec, outbound, run, ids, log, caps = SSE_CAPS } = deps
  const completion = createCompletion(ids)
  try {
    return await requestUpstream(
      chatRequest(spec, run, question),
      { outbound, limits: spec },
      run,
      async (answer, watchdog) => {
        const reading = { run, log, watchdog, caps, completion }
        await (answer.isStream ? readStream(answer, reading) : readJson(answer, reading))
        return await ended(completion, log, spec.model)
      },
    )
  } catch (error) {
    if (error instanceof AgentFailure && !run.signal.aborted) await log.write(completion.flush())
    const { usage } = completion
    throw usage ? withUsage(error, { model: spec.model, ...usage }) : error
  }
}

type Reading = {
  run: AgentRun
  log: NotedLog
  watchdog: Watchdog
  caps: SseCaps
  completion: Completion
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

async function ended(completion: Completion, log: NotedLog, model: string): Promise<Answer> {
  const { finishReason } = completion
  if (finishReason === undefined) {
    throw new AgentFailure('upstream_truncated', 'the answer of the model has no ending', {
      retryable: true,
    })
  }
  const { events, said } = completion.end()
  await log.write(events)
  const { usage } = completion
  return { ...said, finishReason, usage: usage && { model, ...usage } }
}

/** What was used has to be paid for, however it ended. */
function withUsage(error: unknown, usage: TokenUsage): unknown {
  if (!(error instanceof AgentFailure)) return error
  return new AgentFailure(error.code, error.message, {
    ...error,
    cause: error.cause,
    usage: [usage],
  })
}
