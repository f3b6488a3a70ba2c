import { type EffectCall, type EffectOptions, isCancellation, type Run } from '@holdfast/agent-kit'
import { type AgUiEvent, EventType } from '@holdfast/protocol'
import type { StepOptions } from '../step.ts'
import type { Turn } from './turn.ts'

type Work<T> = (call: EffectCall<Run>) => T | Promise<T>

/** A step whose call, arguments and result readers see. */
export async function callTool<T>(
  turn: Turn,
  own: Run,
  name: string,
  args: unknown,
  work: Work<T>,
  { key, policy = 'stop', ...rest }: Partial<EffectOptions<T>> & { key?: string },
): Promise<T> {
  const json = JSON.stringify(args ?? {})
  const toolCallId = turn.mint('t')
  const parentMessageId = turn.mint('m')
  await turn.emit(
    { type: EventType.TOOL_CALL_START, toolCallId, toolCallName: name, parentMessageId },
    { type: EventType.TOOL_CALL_ARGS, toolCallId, delta: json },
    { type: EventType.TOOL_CALL_END, toolCallId },
  )
  const resultOf = (content: string): AgUiEvent => ({
    type: EventType.TOOL_CALL_RESULT,
    messageId: turn.mint('m'),
    toolCallId,
    content,
    role: 'tool',
  })
  let result: T
  try {
    const stepKey = key ?? turn.callKey(name, json)
    result = await takeStep(turn, own, stepKey, { kind: 'tool', policy, ...rest }, work)
  } catch (error) {
    // Its words are the provider's and stay in the log. When the attempt itself is over, its end answers the call.
    const content = isCancellation(error, own.signal) ? 'cancelled' : 'failed'
    if (!turn.run.signal.aborted) await turn.close(resultOf(content))
    throw error
  }
  await turn.emit(resultOf(contentOf(result)))
  return result
}

/** A step in a scope of its own, which the scope around it does not leave behind. */
export function takeStep<T>(
  { run }: Turn,
  own: Run,
  key: string,
  options: StepOptions<T>,
  work: Work<T>,
): Promise<T> {
  own.signal.throwIfAborted()
  return run.step(key, options, ({ idempotencyKey }) =>
    work({ idempotencyKey, signal: own.signal, run: own }),
  )
}

/** A text as it is, anything else as JSON. */
function contentOf(result: unknown): string {
  return typeof result === 'string' ? result : (JSON.stringify(result) ?? 'done')
}
