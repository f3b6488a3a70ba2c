import type { Message, MessagesSnapshotEvent } from '@ag-ui/core'

/** Where AG-UI's client lets a snapshot say which activity types it knows all messages of. */
const ACTIVITY_SCOPE = '@ag-ui/client'

/**
 * What a client holds after a MESSAGES_SNAPSHOT: its own order, the snapshot's messages in place
 * of those with the same id, new ones at the end, others dropped. Reasoning and activity that the
 * snapshot does not speak of at all stay, since most agents never send them back.
 */
export function mergeSnapshot(
  held: readonly Message[],
  snapshot: MessagesSnapshotEvent,
): Message[] {
  const incoming = snapshot.messages.map(withoutNullOwner)
  const byId = new Map(incoming.map((message) => [message.id, message]))
  const staysUnmentioned = clientOnly(snapshot, incoming)
  const merged = held
    .filter((message) => byId.has(message.id) || staysUnmentioned(message))
    .map((message) => byId.get(message.id) ?? message)
  const known = new Set(merged.map((message) => message.id))
  return [...merged, ...incoming.filter((message) => !known.has(message.id))]
}

/** A null owner means no owner; it must not get into stored messages. */
export function withoutNullOwner(message: Message): Message {
  const owner: string | null | undefined = message.subagentRunId
  if (owner !== null) return message
  const { subagentRunId: _, ...rest } = message
  return rest
}

function clientOnly(
  snapshot: MessagesSnapshotEvent,
  incoming: readonly Message[],
): (message: Message) => boolean {
  const scope = activityScope(snapshot)
  const hasActivity = incoming.some((message) => message.role === 'activity')
  const hasReasoning = incoming.some((message) => message.role === 'reasoning')
  return (message) => {
    if (message.role === 'reasoning') return !hasReasoning
    if (message.role !== 'activity' || scope === 'all') return false
    return scope ? !scope.includes(message.activityType) : !hasActivity
  }
}

/** 'all', the listed types, or undefined where the snapshot declares nothing. */
function activityScope(snapshot: MessagesSnapshotEvent): 'all' | string[] | undefined {
  if (!snapshot.metadata || !Object.hasOwn(snapshot.metadata, ACTIVITY_SCOPE)) return undefined
  const declared: unknown = snapshot.metadata[ACTIVITY_SCOPE]
  if (!declared || typeof declared !== 'object' || Array.isArray(declared)) return []
  if (!Object.hasOwn(declared, 'authoritativeActivityTypes')) return undefined
  const types = (declared as Record<string, unknown>).authoritativeActivityTypes
  if (types === null) return 'all'
  const valid = Array.isArray(types) && types.every((type) => typeof type === 'string')
  return valid ? types : []
}
