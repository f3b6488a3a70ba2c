import { failuresOf, withScope } from '@holdfast/agent-kit'
import { LIMITS } from '@holdfast/protocol'
import { AgentFailure } from '../agent.ts'
import { isApproved, wasAsked } from './approval.ts'
import type { AskDeps } from './ask-model.ts'
import { type CallDeps, callTool } from './call-tool.ts'
import { isCut, type MadeCall, resultEvent, type Turn } from './turn.ts'

type AnswerDeps = AskDeps & CallDeps

/** A call, and where it stands in the turn: the same place in every attempt. */
type Placed = { readonly call: MadeCall; readonly place: string }

/**
 * Makes the calls of the newest round, all at once, and answers them as they come back; those of the front end, and
 * those that people have to approve, are left.
 */
export async function answerRound(turn: Turn, deps: AnswerDeps): Promise<void> {
  const round = turn.rounds.at(-1)
  if (!round) return
  const { toolbox } = deps
  const own = round.calls
    .map((call, index) => ({ call, place: `${turn.rounds.length}.${index + 1}` }))
    .filter(({ call }) => {
      const isWaiting = toolbox.serverTools.get(call.name)?.needsApproval === true
      return call.result === undefined && !isWaiting && !toolbox.isFrontEnd(call.name)
    })
  if (isCut(round)) await answerAll(own, NOT_CALLED, deps)
  else await makeAll(own, turn, deps)
}

/** Makes the calls that an earlier turn had to ask people for, if they said yes. */
export async function answerEarlier(turn: Turn, deps: AnswerDeps): Promise<void> {
  const open = turn.earlier
    .map((call, index) => ({ call, place: `0.${index + 1}` }))
    .filter(({ call }) => call.result === undefined)
  const approved = open.filter(({ call }) => isApproved(call.id, deps.run.resume))
  const refused = open.filter((placed) => !approved.includes(placed))
  // Beside them there may be calls of the front end that it did not answer; nobody was asked about those.
  const asked = refused.filter(({ call }) => wasAsked(call.id, deps.run.resume))
  const unanswered = refused.filter((placed) => !asked.includes(placed))
  await answerAll(asked, NOT_APPROVED, deps)
  await answerAll(unanswered, INTERRUPTED, deps)
  await makeAll(approved, turn, deps)
}

const NOT_CALLED = 'Not called: the answer was cut off before it was complete.'
const NOT_APPROVED = 'Not called: the user did not approve it.'
/** As everywhere: the result of a call whose answer will never come. */
const INTERRUPTED = 'interrupted'

/** Longer than a server is given to hear of a cancel, shorter than an attempt is given to stop. */
const STOP_MS_MAX = 3000

/** What was decided is saved before anything is called, and what came of it after. */
async function makeAll(placed: readonly Placed[], turn: Turn, deps: AnswerDeps): Promise<void> {
  if (placed.length === 0) return
  const { run } = deps
  await save(turn, deps)
  const onReport = (report: object) =>
    run.log.warn({ report }, 'a tool call did not end as it should')
  try {
    await withScope(
      (scope) =>
        scope.group((group) => {
          for (const { call, place } of placed) {
            group.spawn(
              async ({ signal }) => answer(call, await callTool(call, place, deps, signal), deps),
              { name: call.name },
            )
          }
        }),
      { signal: run.signal, name: 'tool calls', stopMs: STOP_MS_MAX, onReport },
    )
  } catch (error) {
    run.signal.throwIfAborted()
    // A run can end for one reason only.
    throw failuresOf(error).find((failure) => failure instanceof AgentFailure) ?? error
  }
  await save(turn, deps)
}

async function answerAll(placed: readonly Placed[], result: string, deps: AskDeps): Promise<void> {
  for (const { call } of placed) await answer(call, result, deps)
}

async function answer(call: MadeCall, result: string, { ids, log }: AskDeps): Promise<void> {
  await log.write([resultEvent(call, result, ids)])
  call.result = result
}

/** Without it another attempt would ask the model again; its steps still keep it from doing things twice. */
async function save(turn: Turn, { run }: AskDeps): Promise<void> {
  const bytes = Buffer.byteLength(JSON.stringify(turn))
  if (bytes <= LIMITS.checkpointBytesMax) return await run.checkpoint(turn)
  run.log.warn({ bytes }, 'the turn has become too large for a checkpoint')
}
