import { EventType } from '@ag-ui/core'
import type { AgUiEvent } from '@holdfast/protocol'
import { AgentFailure } from '../agent.ts'

type Kind = 'text' | 'tool' | 'reasoning'
type Lane = { kind: Kind; id: string }
type Chunk = Extract<
  AgUiEvent,
  {
    type:
      | EventType.TEXT_MESSAGE_CHUNK
      | EventType.TOOL_CALL_CHUNK
      | EventType.REASONING_MESSAGE_CHUNK
  }
>

export type ChunkExpander = {
  /** The event with every CHUNK written out as START, CONTENT and END, still in upstream's ids. */
  expand(event: AgUiEvent): AgUiEvent[]
}

/**
 * The chunk shorthand names its message once and then says "the same again". There is one open
 * construct per lane, a lane being the (sub)agent that speaks. It ends when another construct of
 * that lane begins or the run ends; state, steps and custom events may come in the middle.
 */
export function createChunkExpander(mintId: () => string): ChunkExpander {
  const lanes = new Map<string | undefined, Lane>()

  function closeLane(owner: string | undefined): AgUiEvent[] {
    const lane = lanes.get(owner)
    lanes.delete(owner)
    return lane ? [endOf(lane)] : []
  }

  function expandChunk(chunk: Chunk): AgUiEvent[] {
    const kind = kindOf(chunk)
    const givenId = chunk.type === EventType.TOOL_CALL_CHUNK ? chunk.toolCallId : chunk.messageId
    const owner = laneOf(lanes, kind, givenId, chunk.subagentRunId)
    const open = lanes.get(owner)
    if (open?.kind === kind && (givenId === undefined || givenId === open.id)) {
      return contentOf(chunk, open.id)
    }
    const id = givenId ?? mintId()
    const closing = closeLane(owner)
    lanes.set(owner, { kind, id })
    return [...closing, startOf(chunk, id), ...contentOf(chunk, id)]
  }

  return {
    expand(event) {
      switch (event.type) {
        case EventType.TEXT_MESSAGE_CHUNK:
        case EventType.TOOL_CALL_CHUNK:
        case EventType.REASONING_MESSAGE_CHUNK:
          return expandChunk(event)
        case EventType.TEXT_MESSAGE_START:
        case EventType.TEXT_MESSAGE_END:
        case EventType.TOOL_CALL_START:
        case EventType.TOOL_CALL_END:
        case EventType.TOOL_CALL_RESULT:
        case EventType.REASONING_START:
        case EventType.REASONING_MESSAGE_START:
        case EventType.REASONING_MESSAGE_END:
        case EventType.REASONING_END:
        case EventType.SUBAGENT_FINISHED:
        case EventType.SUBAGENT_ERROR:
          return [...closeLane(event.subagentRunId), event]
        case EventType.MESSAGES_SNAPSHOT:
        case EventType.RUN_FINISHED:
        case EventType.RUN_ERROR:
          return [...[...lanes.keys()].flatMap(closeLane), event]
        default:
          return [event]
      }
    },
  }
}

/** A chunk without an owner belongs to the lane that holds its id, else to the only open one. */
function laneOf(
  lanes: ReadonlyMap<string | undefined, Lane>,
  kind: Kind,
  id: string | undefined,
  tag: string | undefined,
): string | undefined {
  if (tag !== undefined) return tag
  const candidates = [...lanes].filter(([, lane]) => lane.kind === kind)
  const holder = candidates.find(([, lane]) => lane.id === id)
  if (holder) return holder[0]
  if (id !== undefined || candidates.some(([owner]) => owner === undefined)) return undefined
  return candidates.length === 1 ? candidates[0]?.[0] : undefined
}

function kindOf(chunk: Chunk): Kind {
  if (chunk.type === EventType.TEXT_MESSAGE_CHUNK) return 'text'
  return chunk.type === EventType.TOOL_CALL_CHUNK ? 'tool' : 'reasoning'
}

function startOf(chunk: Chunk, id: string): AgUiEvent {
  const { type: _, delta: _delta, ...rest } = chunk
  if (chunk.type === EventType.TEXT_MESSAGE_CHUNK) {
    return { ...rest, type: EventType.TEXT_MESSAGE_START, messageId: id }
  }
  if (chunk.type === EventType.REASONING_MESSAGE_CHUNK) {
    return { ...rest, type: EventType.REASONING_MESSAGE_START, messageId: id, role: 'reasoning' }
  }
  const toolCallName = chunk.toolCallName
  if (toolCallName === undefined) {
    throw new AgentFailure('upstream_error', 'the first TOOL_CALL_CHUNK of a call names no tool')
  }
  return { ...rest, type: EventType.TOOL_CALL_START, toolCallId: id, toolCallName }
}

function contentOf(chunk: Chunk, id: string): AgUiEvent[] {
  const { delta } = chunk
  if (delta === undefined) return []
  if (chunk.type === EventType.TOOL_CALL_CHUNK) {
    return [{ type: EventType.TOOL_CALL_ARGS, toolCallId: id, delta }]
  }
  if (chunk.type === EventType.TEXT_MESSAGE_CHUNK) {
    return [{ type: EventType.TEXT_MESSAGE_CONTENT, messageId: id, delta }]
  }
  return [{ type: EventType.REASONING_MESSAGE_CONTENT, messageId: id, delta }]
}

function endOf({ kind, id }: Lane): AgUiEvent {
  if (kind === 'tool') return { type: EventType.TOOL_CALL_END, toolCallId: id }
  if (kind === 'text') return { type: EventType.TEXT_MESSAGE_END, messageId: id }
  return { type: EventType.REASONING_MESSAGE_END, messageId: id }
}
