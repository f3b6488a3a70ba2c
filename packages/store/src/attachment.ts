import { createHash } from 'node:crypto'
import {
  attachmentUrl,
  type ContentPart,
  type MediaPart,
  type Message,
  mapMedia,
  type PartSource,
  referenceOf,
  sentBytesOf,
  UserContent,
} from '@holdfast/protocol'
import { sql } from 'kysely'
import { Refused } from './create-run-request.ts'
import { visibleTo } from './event-log.ts'
import type { Principal } from './principal.ts'
import { type Db, row, rows, type Store } from './store.ts'

/** What a turn brings once its bytes are stored: messages that refer to them, and how many bytes are new. */
export type Kept = { readonly messages: readonly Message[]; readonly bytes: number }

const NAME_CHARS_MAX = 255

/**
 * Stores the bytes that came with content parts, each once in its conversation, and puts references in their place, so
 * that they are in no message and no event. Only for the transaction that accepts the turn, which holds the conversation.
 * @throws Refused for parts that cannot be kept, and for references to what this conversation does not have
 */
export async function keepAttachments(
  db: Db,
  conversation: { readonly id: string; readonly tenantId: string },
  messages: readonly Message[],
): Promise<Kept> {
  refuseUnusable(messages)
  const parts = messages.flatMap((message) => contentOf(message).filter(isMedia))
  const bytes = await insertSent(db, conversation, parts)
  const mediaTypes = await readMediaTypes(db, conversation.id, parts)
  const referring = messages.map((message) => withParts(message, (part) => refer(part)))
  return { messages: referring, bytes }

  function refer(part: MediaPart): ContentPart {
    const id = attachmentIdOf(part.source)
    if (id === null) return part
    const reference = referenceOf(part.source)
    const mimeType = mediaTypes.get(id)
    if (mimeType === undefined || (reference && reference.conversationId !== conversation.id)) {
      throw new Refused({ kind: 'unknown_attachment' })
    }
    return { ...part, source: { type: 'url', value: attachmentUrl(conversation.id, id), mimeType } }
  }
}

/** The same for the same bytes under the same type, wherever they are; `null`: the source has no bytes of ours. */
export function attachmentIdOf(source: PartSource): string | null {
  const sent = sentBytesOf(source)
  if (!sent) return referenceOf(source)?.id ?? null
  const digest = createHash('sha256').update(`${sent.mimeType}\0`)
  return digest.update(sent.base64, 'base64').digest('hex')
}

function withParts(message: Message, replaced: (part: MediaPart) => ContentPart): Message {
  if (message.role !== 'user' && message.role !== 'tool') return message
  return { ...message, content: mapMedia(message.content, replaced) }
}

export function contentOf(message: Message): readonly ContentPart[] {
  const hasParts = message.role === 'user' || message.role === 'tool'
  return hasParts && typeof message.content !== 'string' ? message.content : []
}

export function isMedia(part: ContentPart): part is MediaPart {
  return part.type !== 'text'
}

/** What a front end's history says of calls that are settled is never looked at, so results are judged only here. */
function refuseUnusable(messages: readonly Message[]): void {
  const results = messages.filter((message) => message.role === 'tool')
  const errors = results.flatMap((message, place) => {
    const parts = contentOf(message)
    const parsed = parts.length > 0 ? UserContent.safeParse(parts) : null
    return (parsed?.error?.issues ?? []).map(({ path, message: reason }) => ({
      path: ['toolResults', place, 'content', ...path].join('.'),
      message: reason,
    }))
  })
  if (errors.length > 0) throw new Refused({ kind: 'invalid_content', errors })
}

/** Guarantees that each is there once, and returns how many bytes were not there before. Index: the primary key. */
async function insertSent(
  db: Db,
  conversation: { readonly id: string; readonly tenantId: string },
  parts: readonly MediaPart[],
): Promise<number> {
  const sent = parts.flatMap((part) => {
    const brought = sentBytesOf(part.source)
    const id = attachmentIdOf(part.source)
    return brought && id !== null ? [{ ...brought, id, name: nameOf(part) }] : []
  })
  if (sent.length === 0) return 0
  const added = await rows(
    db,
    sql<{ bytes: number }>`
      INSERT INTO holdfast.attachments (conversation_id, id, tenant_id, media_type, name, bytes)
      SELECT ${conversation.id}::uuid, a.id, ${conversation.tenantId}, a.media_type, a.name, decode(a.base64, 'base64')
      FROM unnest(${sent.map(({ id }) => id)}::text[], ${sent.map(({ mimeType }) => mimeType)}::text[],
                  ${sent.map(({ name }) => name)}::text[], ${sent.map(({ base64 }) => base64)}::text[])
        AS a (id, media_type, name, base64)
      ON CONFLICT DO NOTHING RETURNING octet_length(bytes) AS bytes`,
  )
  return added.reduce((sum, { bytes }) => sum + bytes, 0)
}

/** By id, of those that the parts refer to and that are there. A new statement: it sees what was just stored. */
async function readMediaTypes(
  db: Db,
  conversationId: string,
  parts: readonly MediaPart[],
): Promise<ReadonlyMap<string, string>> {
  const ids = parts.map((part) => attachmentIdOf(part.source)).filter((id) => id !== null)
  if (ids.length === 0) return new Map()
  const found = await rows(
    db,
    sql<{ id: string; media_type: string }>`
      SELECT id, media_type FROM holdfast.attachments
      WHERE conversation_id = ${conversationId} AND id = ANY (${ids}::text[])`,
  )
  return new Map(found.map(({ id, media_type }) => [id, media_type]))
}

/** What its sender calls the file, without folders. */
function nameOf({ metadata }: MediaPart): string | null {
  const given: unknown = metadata?.['filename'] ?? metadata?.['name']
  const name = typeof given === 'string' ? (given.split(/[/\\]/).at(-1) ?? '') : ''
  return name === '' ? null : name.slice(0, NAME_CHARS_MAX).toWellFormed()
}

export type Attachment = {
  readonly mediaType: string
  readonly name: string | null
  readonly size: number
  /** `null` if only the rest was asked for. */
  readonly bytes: Buffer | null
}

/** `null`: an unknown, foreign or deleted conversation, or one without it. Index: primary keys. */
export async function readAttachment(
  store: Store,
  principal: Principal,
  conversationId: string,
  id: string,
  { withBytes }: { withBytes: boolean },
): Promise<Attachment | null> {
  const found = await row(
    store,
    sql<{ media_type: string; name: string | null; size: number; bytes: Buffer | null }>`
      SELECT a.media_type, a.name, octet_length(a.bytes) AS size,
        CASE WHEN ${withBytes} THEN a.bytes END AS bytes
      FROM holdfast.attachments a JOIN holdfast.conversations r ON r.id = a.conversation_id
      WHERE a.conversation_id = ${conversationId} AND a.id = ${id}
        AND r.deleted_at IS NULL AND ${visibleTo(principal)}`,
  )
  return found && { mediaType: found.media_type, ...found }
}
