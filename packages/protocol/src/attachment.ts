import type { ContentPart, PartSource } from '@ag-ui/core'

/** A content part that has bytes somewhere. */
export type MediaPart = Exclude<ContentPart, { type: 'text' }>

/** Bytes that came with a part, as base64. */
export type SentBytes = { readonly mimeType: string; readonly base64: string }

const REFERENCE =
  /^\/conversations\/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\/attachments\/([0-9a-f]{64})$/

/** Where the API has an attachment. Relative, so that it is right under whatever name a front end reaches us. */
export function attachmentUrl(conversationId: string, id: string): string {
  return `/conversations/${conversationId}/attachments/${id}`
}

/** Which attachment of ours a part refers to; `null`: none, its source is the caller's own. */
export function referenceOf(source: PartSource): { conversationId: string; id: string } | null {
  const [, conversationId, id] = (source.type === 'url' && REFERENCE.exec(source.value)) || []
  return conversationId === undefined || id === undefined ? null : { conversationId, id }
}

/** The bytes that a source brings along, as data or in a data URL; `null`: they are somewhere else. */
export function sentBytesOf(source: PartSource): SentBytes | null {
  if (source.type === 'data') return { mimeType: source.mimeType, base64: source.value }
  if (source.type !== 'url' || !isDataUrl(source.value)) return null
  const comma = source.value.indexOf(',')
  const [, mimeType] = /^data:(.*);base64$/is.exec(source.value.slice(0, comma)) ?? []
  return mimeType === undefined ? null : { mimeType, base64: source.value.slice(comma + 1) }
}

/** The content with each part that has bytes replaced; text stays. */
export function mapMedia<C extends string | readonly ContentPart[]>(
  content: C,
  replaced: (part: MediaPart) => ContentPart,
): C | ContentPart[] {
  if (typeof content === 'string') return content
  return content.map((part) => (part.type === 'text' ? part : replaced(part)))
}

export function isDataUrl(url: string): boolean {
  return /^data:/i.test(url)
}

/** Exactly what an encoder writes, so that equal bytes are equal text. */
export function isBase64(text: string): boolean {
  try {
    return btoa(atob(text)) === text
  } catch {
    return false
  }
}

const DOCUMENTS = [
  'pdf|json|xml|yaml|x-yaml|rtf|zip|epub\\+zip|msword',
  'vnd\\.ms-(?:excel|powerpoint|word)[a-z0-9.-]*',
  'vnd\\.openxmlformats-officedocument\\.[a-z.]+',
  'vnd\\.oasis\\.opendocument\\.[a-z-]+',
  '[a-z0-9.-]+\\+(?:json|xml)',
].join('|')
const MEDIA_TYPE = new RegExp(
  `^(?:(?:image|audio|video|text)/[a-z0-9][a-z0-9.+-]*|application/(?:${DOCUMENTS}))` +
    '(?: *; *[a-z0-9-]+=(?:[a-z0-9._+-]+|"[a-z0-9._+, -]+"))*$',
  'i',
)
const MEDIA_TYPE_CHARS_MAX = 127

/** What models and people can look at: pictures, sound, films, text, and documents. No programs. */
export function isAttachable(mediaType: string): boolean {
  return mediaType.length <= MEDIA_TYPE_CHARS_MAX && MEDIA_TYPE.test(mediaType)
}
