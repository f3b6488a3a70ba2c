import {
  type ContentPart,
  LIMITS,
  type MediaPart,
  type Message,
  mapMedia,
  referenceOf,
} from '@holdfast/protocol'
import { sql } from 'kysely'
import { contentOf, isMedia } from './attachment.ts'
import { type Db, rows, type Store } from './store.ts'

/**
 * Contents as an agent needs them, by message id: the bytes again where the stored ones refer to them, since no agent can
 * reach us. The newest first, until the limit of an attempt; what is older is a note. Every use counts, so that one
 * file which is named a hundred times costs no more than a hundred files. Index: the primary key.
 */
export async function readAttachedContents(
  db: Store | Db,
  conversationId: string,
  messages: readonly Message[],
): Promise<ReadonlyMap<string, ContentPart[]>> {
  const uses = messages.flatMap((message) => contentOf(message).filter(isMedia).flatMap(useOf))
  if (uses.length === 0) return new Map()
  const sizes = await rows(
    db,
    sql<{ id: string; size: number }>`
      SELECT id, octet_length(bytes) AS size FROM holdfast.attachments
      WHERE conversation_id = ${conversationId} AND id = ANY (${uses.map(({ id }) => id)}::text[])`,
  )
  const kept = newestWithin(uses, new Map(sizes.map(({ id, size }) => [id, size])))
  const loaded = await rows(
    db,
    sql<{ id: string; media_type: string; bytes: Buffer }>`
      SELECT id, media_type, bytes FROM holdfast.attachments
      WHERE conversation_id = ${conversationId} AND id = ANY (${[...new Set(kept.values())]}::text[])`,
  )
  const sources = new Map(
    loaded.map(({ id, media_type, bytes }) => [
      id,
      { type: 'data' as const, value: bytes.toString('base64'), mimeType: media_type },
    ]),
  )
  const given = (part: MediaPart): ContentPart => {
    const reference = referenceOf(part.source)
    if (!reference) return part
    const source = kept.has(part) ? sources.get(reference.id) : undefined
    return source ? { ...part, source } : leftOut(part)
  }
  const referring = messages.filter((message) =>
    contentOf(message).some((part) => isMedia(part) && referenceOf(part.source)),
  )
  return new Map(
    referring.map((message) => [message.id, [...mapMedia([...contentOf(message)], given)]]),
  )
}

type Use = { readonly part: MediaPart; readonly id: string }

function useOf(part: MediaPart): Use[] {
  const reference = referenceOf(part.source)
  return reference ? [{ part, id: reference.id }] : []
}

/** Everything from the end on as long as it fits, with nothing skipped in between. */
function newestWithin(
  uses: readonly Use[],
  sizes: ReadonlyMap<string, number>,
): ReadonlyMap<MediaPart, string> {
  const kept = new Map<MediaPart, string>()
  let left: number = LIMITS.attemptAttachmentBytesMax
  for (const { part, id } of uses.toReversed()) {
    left -= sizes.get(id) ?? 0
    if (left < 0) break
    kept.set(part, id)
  }
  return kept
}

function leftOut({ type, source }: MediaPart): ContentPart {
  return { type: 'text', text: `[An earlier attachment is left out: ${type}, ${source.mimeType}]` }
}
