import { EventType, omitOptionalNulls } from '@ag-ui/core'
import { EventSchemas } from '@ag-ui/core/schemas'
import type { AgUiEvent } from '@holdfast/protocol'
import { AgentFailure } from '../agent.ts'
import { stripUnknown } from './strip-unknown.ts'

/** An event as an upstream may mean it, or why nothing is to be done with it. */
export type ParsedEvent =
  | { kind: 'event'; event: AgUiEvent }
  | { kind: 'ignored'; type: string; known: boolean }

const KNOWN_TYPES: ReadonlySet<string> = new Set(Object.values(EventType))

/** What concerns only the upstream's own run, or carries a provider's raw answer. */
const NOT_OURS: ReadonlySet<string> = new Set([EventType.RAW, EventType.RUN_STARTED])

/**
 * One value of an upstream's stream as an AG-UI event: nulls in place of absent fields, `rawEvent`
 * and fields that the protocol does not know are gone.
 * @throws AgentFailure upstream_error if it is no event, an error, or a known one with wrong fields
 */
export function parseEvent(value: unknown): ParsedEvent {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new AgentFailure('upstream_error', 'the upstream sent something that is no event')
  }
  const type = 'type' in value ? value.type : undefined
  if (typeof type !== 'string') {
    throw new AgentFailure(
      'upstream_error',
      `the upstream sent an object without a type: ${excerpt(value)}`,
    )
  }
  // Gateways put their own kind of error into the stream that they cut off.
  if (type === 'error') {
    throw new AgentFailure('upstream_error', `the upstream sent an error: ${excerpt(value)}`)
  }
  if (!KNOWN_TYPES.has(type)) return { kind: 'ignored', type, known: false }
  if (NOT_OURS.has(type)) return { kind: 'ignored', type, known: true }
  return { kind: 'event', event: validated({ ...value, type }) }
}

function validated(value: Record<string, unknown> & { type: string }): AgUiEvent {
  const { rawEvent: _, timestamp, ...rest } = value
  const cleaned: Record<string, unknown> = omitOptionalNulls(rest, 'Event')
  // Python servers send float seconds or ISO texts here; the time of an event is not worth a run.
  if (Number.isSafeInteger(timestamp)) cleaned.timestamp = timestamp
  const parsed = EventSchemas.safeParse(cleaned)
  if (parsed.success) return stripUnknown(parsed.data, EventSchemas) as AgUiEvent
  if (value.type === EventType.RUN_FINISHED && 'usage' in cleaned) {
    const { usage: _usage, ...withoutUsage } = value
    return validated({ ...withoutUsage, type: value.type })
  }
  const where = parsed.error.issues.map((issue) => issue.path.join('.')).join(', ')
  throw new AgentFailure('upstream_error', `the upstream sent a malformed ${value.type}: ${where}`)
}

function excerpt(value: object): string {
  return JSON.stringify(value).slice(0, 300)
}
