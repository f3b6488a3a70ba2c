import { aggregateTokenUsage } from '@ag-ui/core'
import type { TokenUsage } from '@holdfast/protocol'
import { AgentFailure, type AgentResult } from '../agent.ts'
import { type Answer, type AskDeps, askModel } from './ask-model.ts'
import { chatMessages, systemMessage } from './chat-messages.ts'
import { fitContext, textTokens } from './fit-context.ts'
import { openToolbox, type Toolbox } from './toolbox.ts'
import { type MadeCall, type Round, resultEvent, roundMessages, saidAgain, Turn } from './turn.ts'

/** Asks the model and does what it calls for, in turns, until it has answered or may not go on. */
export async function converse(deps: AskDeps): Promise<AgentResult> {
  const { spec, run } = deps
  const turn = await openTurn(deps)
  const toolbox = openToolbox(run.tools)
  try {
    for (;;) {
      const round = turn.rounds.at(-1)
      if (round && (await isOver(round, turn, toolbox, deps))) return resultOf(round, turn)
      if (turn.rounds.length >= spec.maxSteps) {
        throw new AgentFailure(
          'limit_exceeded',
          `the model wanted more than ${spec.maxSteps} steps`,
        )
      }
      await ask(turn, toolbox, deps)
    }
  } catch (error) {
    throw withUsage(error, turn.usage)
  }
}

/** What a lost attempt decided and did is not asked for again: the turn goes on from its checkpoint. */
async function openTurn({ run, ids, log }: AskDeps): Promise<Turn> {
  const saved = Turn.safeParse(run.saved?.data)
  if (!saved.success) return { rounds: [], usage: [] }
  if (run.saved?.current) return saved.data
  const again = saidAgain(saved.data, ids)
  await log.write(again.events)
  return again.turn
}

async function ask(turn: Turn, toolbox: Toolbox, deps: AskDeps): Promise<void> {
  const { spec, run } = deps
  const { offered: tools } = toolbox
  const messages = [
    ...systemMessage(spec.system, run.context),
    ...chatMessages(run.messages),
    ...roundMessages(turn),
  ]
  const fitting =
    spec.contextTokens === undefined
      ? messages
      : fitContext(messages, spec.contextTokens, textTokens(JSON.stringify(tools)))
  const dropped = messages.length - fitting.length
  if (dropped > 0) run.log.info({ dropped }, 'the oldest turns do not fit into the context')
  const answerNow = turn.rounds.length === spec.maxSteps - 1
  const answer = await askModel(deps, { messages: fitting, tools, answerNow })
  if (answer.usage) turn.usage = added(turn.usage, answer.usage)
  turn.rounds.push(roundOf(answer))
}

function roundOf({ messageId, text, calls, finishReason }: Answer): Round {
  return { messageId, text, finishReason, calls: calls.map((call) => ({ ...call })) }
}

/** Does what the round calls for. True when nothing is left to ask the model. */
async function isOver(round: Round, turn: Turn, toolbox: Toolbox, deps: AskDeps): Promise<boolean> {
  if (round.calls.length === 0) return true
  const own = round.calls.filter(
    (call) => call.result === undefined && !toolbox.isFrontEnd(call.name),
  )
  if (CUT.has(round.finishReason)) {
    await Promise.all(own.map((call) => answerCall(call, NOT_DONE, deps)))
    return true
  }
  await Promise.all(own.map((call) => answerCall(call, toolbox.refusal(call), deps)))
  return round.calls.some((call) => call.result === undefined)
}

/** Nobody knows what the model would have gone on to ask for. */
const CUT: ReadonlySet<string> = new Set(['length', 'content_filter'])
const NOT_DONE = 'Not called: the answer was cut off before it was complete.'

async function answerCall(call: MadeCall, result: string, { ids, log }: AskDeps): Promise<void> {
  await log.write([resultEvent(call, result, ids)])
  call.result = result
}

function resultOf({ finishReason }: Round, { usage }: Turn): AgentResult {
  const ordinary = ORDINARY.has(finishReason)
  return {
    outcome: 'success',
    ...(!ordinary && { result: { finishReason } }),
    ...(usage.length > 0 && { usage }),
  }
}

const ORDINARY: ReadonlySet<string> = new Set(['stop', 'tool_calls', 'function_call'])

function added(usage: readonly TokenUsage[], more: TokenUsage): TokenUsage[] {
  return aggregateTokenUsage([...usage, more])
}

function withUsage(error: unknown, usage: readonly TokenUsage[]): unknown {
  if (!(error instanceof AgentFailure)) return error
  const all = (error.usage ?? []).reduce(added, [...usage])
  if (all.length === 0) return error
  return new AgentFailure(error.code, error.message, { ...error, cause: error.cause, usage: all })
}
