import { type AgUiEvent, EventType, joinSurrogates, sanitize } from '@holdfast/protocol'
import { AgentFailure } from '../agent.ts'
import type { RunIds } from '../run-ids.ts'
import type { CallPiece } from './chat-piece.ts'

/** A call as the model made it; the id is ours, unique in the conversation. */
export type ToolCall = { readonly id: string; readonly name: string; readonly arguments: string }

export type ToolCalls = {
  push(piece: CallPiece): AgUiEvent[]
  /** Held halves of surrogate pairs. */
  flush(): AgUiEvent[]
  /** @throws AgentFailure upstream_error if a call has no name to the end */
  end(): AgUiEvent[]
  all(): readonly ToolCall[]
}

type Growing = {
  readonly id: string
  /** The server's id, or '' if it gave none. */
  readonly theirId: string
  readonly index: number | undefined
  name: string
  arguments: string
  started: boolean
}

/** Puts the tool calls of one answer together, however their parts are numbered and mixed. */
export function createToolCalls(ids: RunIds, parentMessageId: string): ToolCalls {
  const calls: Growing[] = []
  const joined = joinSurrogates()

  function callOf(piece: CallPiece): Growing {
    const known = find(calls, piece)
    if (known) return known
    const { id: theirId, index } = piece
    const call = { id: ids.call(theirId), theirId, index, name: '', arguments: '', started: false }
    calls.push(call)
    return call
  }
  /** A name may come in pieces or be repeated; it is whole when arguments begin. */
  function start(call: Growing): AgUiEvent[] {
    if (call.started || call.name === '') return []
    call.started = true
    const { id: toolCallId, name: toolCallName, arguments: delta } = call
    const early = delta === '' ? [] : [argsEvent(toolCallId, delta)]
    return [
      { type: EventType.TOOL_CALL_START, toolCallId, toolCallName, parentMessageId },
      ...early,
    ]
  }
  function args(call: Growing, delta: string): AgUiEvent[] {
    if (delta === '') return []
    const starting = start(call)
    call.arguments += delta
    return call.started ? [...starting, argsEvent(call.id, delta)] : []
  }
  function end(call: Growing): AgUiEvent[] {
    const events = [...args(call, joined.end(call.id)), ...start(call)]
    if (!call.started) {
      throw new AgentFailure('upstream_error', 'the model called a tool without a name')
    }
    // A tool without parameters is called with nothing at all by some models.
    if (call.arguments.trim() === '') events.push(...args(call, '{}'))
    return [...events, { type: EventType.TOOL_CALL_END, toolCallId: call.id }]
  }

  return {
    push(piece) {
      if (piece.id === '' && piece.name === '' && piece.arguments === '') return []
      const call = callOf(piece)
      if (!call.started && call.name !== piece.name) call.name += piece.name
      return args(call, sanitize(joined.push(call.id, piece.arguments)))
    },
    flush: () => calls.flatMap((call) => args(call, joined.end(call.id))),
    end: () => calls.flatMap(end),
    all: () => calls.map(({ id, name, arguments: given }) => ({ id, name, arguments: given })),
  }
}

function argsEvent(toolCallId: string, delta: string): AgUiEvent {
  return { type: EventType.TOOL_CALL_ARGS, toolCallId, delta }
}

/**
 * Which call a part belongs to. Only a part with a name can begin a call. Some servers give every call the index 0,
 * some give only the first part an id, and some make up a new id for each part.
 */
function find(calls: readonly Growing[], { id, index, name }: CallPiece): Growing | undefined {
  const sameId = id === '' ? undefined : calls.find((call) => call.theirId === id)
  if (sameId) return sameId
  const sameIndex =
    index === undefined ? calls.at(-1) : calls.findLast((call) => call.index === index)
  if (!sameIndex || name === '') return sameIndex
  const isOther = id !== '' && sameIndex.theirId !== ''
  const isNext = index === undefined && sameIndex.arguments !== ''
  return isOther || isNext ? undefined : sameIndex
}
