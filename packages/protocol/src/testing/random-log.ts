import { EventType } from '@ag-ui/core'
import * as fc from 'fast-check'
import { closingEvents } from '../closing.ts'
import type { AgUiEvent, Message } from '../event.ts'
import { type Fold, foldEvents } from '../fold.ts'
import { attemptEvent, withdrawalEvents } from '../withdrawal.ts'
import type { Builder } from './builder.ts'
import { MOVES } from './random-moves.ts'

export type RandomLog = {
  history: Message[]
  stateBefore: unknown
  events: AgUiEvent[]
}

const USER: Message = { id: 'u2', role: 'user', content: 'and now?' }

const HISTORY: Message[] = [
  { id: 'u1', role: 'user', content: [{ type: 'text', text: 'hello' }] },
  { id: 'r1', role: 'reasoning', content: 'thinking' },
  { id: 'a1', role: 'assistant', content: 'hi', toolCalls: [call('c1'), call('c2')] },
  { id: 'c1r', role: 'tool', toolCallId: 'c1', content: 'one' },
  { id: 'c2r', role: 'tool', toolCallId: 'c2', content: 'two' },
  { id: 'v1', role: 'activity', activityType: 'plan', content: { steps: [] } },
]

/**
 * Logs that AG-UI's verifier accepts: all event types that a log may hold, interleaved, taken
 * over now and then, left open or closed and ended.
 */
export function randomLog({ movesMax = 60, collides = false } = {}): fc.Arbitrary<RandomLog> {
  const roll = fc.record({
    move: fc.nat({ max: 999 }),
    a: fc.nat({ max: 999 }),
    b: fc.nat({ max: 999 }),
    text: fc.string({ maxLength: 5, unit: 'binary' }),
  })
  const state = fc.constantFrom(undefined, {}, { n: 1, list: [1, 2] })
  return fc
    .tuple(fc.array(roll, { maxLength: movesMax, size: 'max' }), fc.boolean(), state, fc.boolean())
    .map(([rolls, hasHistory, stateBefore, ends]) => {
      const history = hasHistory ? HISTORY : []
      const log = begun(history, stateBefore, collides)
      let epoch = 1
      for (const { move, ...dice } of rolls) {
        if (move >= 985) takeOver(log, ++epoch, history, stateBefore)
        else MOVES[move % MOVES.length]?.(log, dice)
      }
      if (ends) end(log)
      return { history, stateBefore, events: log.events }
    })
}

function begun(history: Message[], state: unknown, collides: boolean): Builder {
  let minted = 0
  const log: Builder = {
    fold: { messages: history, open: [], terminal: null, ...(state !== undefined && { state }) },
    events: [],
    owners: new Map(),
    collides,
    add(...events) {
      log.events.push(...events)
      log.fold = foldEvents(log.fold, events)
    },
    mint: (prefix) => `${prefix}-${++minted}`,
  }
  log.add(
    {
      type: EventType.RUN_STARTED,
      threadId: 't',
      runId: 'r',
      input: { threadId: 't', runId: 'r', messages: [USER], tools: [], context: [] },
    },
    attemptEvent(1, 'first'),
  )
  return log
}

function takeOver(log: Builder, epoch: number, history: Message[], state: unknown) {
  log.add(
    ...withdrawalEvents({
      fold: log.fold,
      epoch,
      reason: 'takeover',
      history: [...history, USER],
      state,
    }),
  )
}

function end(log: Builder) {
  log.add(...closingEvents(log.fold, { answerTools: true, mintId: () => log.mint('tool') }))
  log.add({
    type: EventType.RUN_FINISHED,
    threadId: 't',
    runId: 'r',
    outcome: { type: 'cancelled' },
  })
}

function call(id: string) {
  return { id, type: 'function' as const, function: { name: 'look', arguments: '{}' } }
}

export function foldBefore({ history, stateBefore }: RandomLog): Fold {
  const state = stateBefore === undefined ? {} : { state: stateBefore }
  return { messages: history, open: [], terminal: null, ...state }
}
