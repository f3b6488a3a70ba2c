import { createHash } from 'node:crypto'
import { type AgUiEvent, sanitize, type TokenUsage } from '@holdfast/protocol'
import * as z from 'zod'
import type { AgentRun } from '../agent.ts'

/** What all contexts of one attempt have in common. */
export type Turn = {
  readonly run: AgentRun
  /** The conversation's state as this run has left it so far. */
  state: unknown
  readonly usage: TokenUsage[]
  /** The author's part of the last checkpoint. */
  readonly savedData: unknown
  mint(kind: 'm' | 'r' | 't' | 'i'): string
  emit(...events: AgUiEvent[]): Promise<void>
  /** For what must be closed: nothing is thrown, since the attempt's own end closes what this cannot. */
  close(...events: AgUiEvent[]): Promise<void>
  /** Names a call that has no name: its tool, its arguments, and which of several equal ones it is. */
  callKey(name: string, args: string): string
  checkpoint(data: unknown): Promise<void>
}

/** What an attempt keeps for the next beside the author's data. */
const Kept = z.object({
  data: z.unknown(),
  calls: z.record(z.string(), z.number()),
  /** Only if this run has changed it. */
  state: z.object({ value: z.unknown() }).nullable(),
})

export function openTurn(run: AgentRun): Turn {
  const kept = run.saved ? Kept.parse(run.saved.data) : null
  // Where everything is said again, equal calls are counted from the beginning again.
  const goesOn = run.saved?.current === true ? kept : null
  const calls = new Map(Object.entries(goesOn?.calls ?? {}))
  const before = run.state
  let minted = 0

  const turn: Turn = {
    run,
    state: goesOn?.state ? goesOn.state.value : before,
    usage: [],
    savedData: kept?.data,
    mint(kind) {
      minted += 1
      return `${run.runId}.${run.epoch}.${kind}${minted}`
    },
    emit: (...events) => run.emit(events.map(sanitize)),
    async close(...events) {
      try {
        await run.emit(events)
      } catch (error) {
        run.log.debug({ err: error }, 'the attempt is over; its end closes what is open')
      }
    },
    callKey(name, args) {
      const digest = createHash('sha256').update(args).digest('base64url').slice(0, 16)
      const call = `${name.slice(0, CALL_NAME_CHARS)}:${digest}`
      const count = (calls.get(call) ?? 0) + 1
      calls.set(call, count)
      return count === 1 ? call : `${call}:${count}`
    },
    async checkpoint(data) {
      const state = turn.state === before ? null : { value: turn.state }
      await run.checkpoint({ data, calls: Object.fromEntries(calls), state })
    },
  }
  return turn
}

/** Encoded as in a URL, a key has at most 200 characters. */
const CALL_NAME_CHARS = 40
