import { type EffectCall, type EffectOptions, isCancellation, type Run } from '@holdfast/agent-kit'
import { type AgUiEvent, EventType } from '@holdfast/protocol'
import type { StepOptions } from '../step.ts'
import { asJson } from './json.ts'
import type { Turn } from './turn.ts'

type Work<T> = (call: EffectCall<Run>) => T | Promise<T>

type Options<T> = Partial<EffectOptions<T>> & { readonly key?: string | undefined }

/** A call that readers see, with its arguments and without a result. */
export async function showCall(
  turn: Turn,
  { signal }: Pick<Run, 'signal'>,
  name: string,
  json: string,
): Promise<string> {
  signal.throwIfAborted()
  const toolCallId = turn.mint('t')
  const parentMessageId = turn.mint('m')
  await turn.emit(
    { type: EventType.TOOL_CALL_START, toolCallId, toolCallName: name, parentMessageId },
    { type: EventType.TOOL_CALL_ARGS, toolCallId, delta: json },
    { type: EventType.TOOL_CALL_END, toolCallId },
  )
  return toolCallId
}

/** A step whose call, arguments and result readers see. */
export async function callTool<T>(
  turn: Turn,
  own: Run,
  name: string,
  args: unknown,
  work: Work<T>,
  { key, ...options }: Options<T>,
): Promise<T> {
  const json = argumentsOf(args)
  const toolCallId = await showCall(turn, own, name, json)
  return answerCall(turn, own, toolCallId, work, {
    ...options,
    key: key ?? turn.callKey(name, json),
  })
}

/** A step whose result answers a call that readers have seen. */
export async function answerCall<T>(
  turn: Turn,
  own: Run,
  toolCallId: string,
  work: Work<T>,
  { key = `answer:${toolCallId}`, policy = 'stop', ...rest }: Options<T>,
): Promise<T> {
  const resultOf = (content: string): AgUiEvent => ({
    type: EventType.TOOL_CALL_RESULT,
    messageId: turn.mint('m'),
    toolCallId,
    content,
    role: 'tool',
  })
  let result: T
  try {
    result = await takeStep(turn, own, key, { kind: 'tool', policy, ...rest }, work)
  } catch (error) {
    // Its words are the provider's and stay in the log. When the attempt itself is over, its end answers the call.
    const content = isCancellation(error, own.signal) ? 'cancelled' : 'failed'
    if (!turn.run.signal.aborted) await turn.close(resultOf(content))
    throw error
  }
  await turn.emit(resultOf(contentOf(result)))
  return result
}

/** @throws TypeError when they are not JSON */
export function argumentsOf(args: unknown): string {
  return JSON.stringify(asJson('the arguments', args ?? {}))
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
  return run.step(key, { ...options, signal: own.signal }, ({ idempotencyKey }) =>
    work({ idempotencyKey, signal: own.signal, run: own }),
  )
}

/** A text as it is, anything else as JSON. */
function contentOf(result: unknown): string {
  return typeof result === 'string' ? result : (JSON.stringify(result) ?? 'done')
}
