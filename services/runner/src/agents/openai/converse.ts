import { aggregateTokenUsage } from '@ag-ui/core'
import type { TokenUsage } from '@holdfast/protocol'
import { AgentFailure, type AgentResult } from '../agent.ts'
import type { SessionPool } from '../mcp/session-pool.ts'
import { answerEarlier, answerRound } from './answer-calls.ts'
import { approvalOf } from './approval.ts'
import { type Answer, type AskDeps, askModel } from './ask-model.ts'
import { chatMessages, systemMessage, withResults } from './chat-messages.ts'
import { fitContext, textTokens } from './fit-context.ts'
import { openToolbox, type Toolbox } from './toolbox.ts'
import {
  isCut,
  type MadeCall,
  newTurn,
  type Round,
  roundMessages,
  saidAgain,
  Turn,
} from './turn.ts'

export type ConverseDeps = AskDeps & { readonly sessions: SessionPool }

/** Asks the model and does what it calls for, in turns, until it has answered or may not go on. */
export async function converse(deps: ConverseDeps): Promise<AgentResult> {
  const { spec, run, sessions } = deps
  const toolbox = await openToolbox(spec, run, sessions)
  const turn = await openTurn(deps)
  try {
    await answerEarlier(turn, { ...deps, toolbox })
    for (;;) {
      await answerRound(turn, { ...deps, toolbox })
      const round = turn.rounds.at(-1)
      if (round && isOver(round)) return resultOf(round, turn, toolbox)
      if (turn.rounds.length >= spec.maxSteps) {
        const message = `the model wanted more than ${spec.maxSteps} steps`
        throw new AgentFailure('limit_exceeded', message)
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
  if (!saved.success) return newTurn(run)
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
    ...withResults(chatMessages(run.messages), turn.earlier),
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

/** Nothing is left to ask the model, in this run at least. */
function isOver(round: Round): boolean {
  return round.calls.length === 0 || isCut(round) || round.calls.some(isPending)
}

function isPending({ result }: MadeCall): boolean {
  return result === undefined
}

const ORDINARY: ReadonlySet<string> = new Set(['stop', 'tool_calls', 'function_call'])

function resultOf({ calls, finishReason }: Round, { usage }: Turn, toolbox: Toolbox): AgentResult {
  const paid = usage.length > 0 ? { usage } : {}
  const waiting = calls.filter((call) => isPending(call) && !toolbox.isFrontEnd(call.name))
  if (waiting.length > 0) {
    return { outcome: 'interrupt', interrupts: waiting.map(approvalOf), ...paid }
  }
  if (ORDINARY.has(finishReason)) return { outcome: 'success', ...paid }
  return { outcome: 'success', result: { finishReason }, ...paid }
}

function added(usage: readonly TokenUsage[], more: TokenUsage): TokenUsage[] {
  return aggregateTokenUsage([...usage, more])
}

function withUsage(error: unknown, usage: readonly TokenUsage[]): unknown {
  if (!(error instanceof AgentFailure)) return error
  const all = (error.usage ?? []).reduce(added, [...usage])
  if (all.length === 0) return error
  return new AgentFailure(error.code, error.message, { ...error, cause: error.cause, usage: all })
}
