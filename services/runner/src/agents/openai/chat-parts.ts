import type { UserMessage } from '@holdfast/protocol'

/** A content part in chat completions' words. */
export type ChatPart =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image_url'; readonly image_url: { readonly url: string } }
  | { readonly type: 'video_url'; readonly video_url: { readonly url: string } }
  | {
      readonly type: 'input_audio'
      readonly input_audio: { readonly data: string; readonly format: string }
    }
  | {
      readonly type: 'file'
      readonly file:
        | { readonly file_id: string }
        | { readonly file_data: string; readonly filename: string }
    }

type Content = UserMessage['content']
type Part = Exclude<Content, string>[number]
type Source = Exclude<Part, { type: 'text' }>['source']

/** What a user sent; what the model cannot take is the provider's to say, not ours to drop. */
export function chatParts(content: Content): string | ChatPart[] {
  return typeof content === 'string' ? content : content.map(chatPart)
}

/** The words of a content, for where only words may stand. */
export function plainText(content: Content): string {
  if (typeof content === 'string') return content
  return content.map((part) => (part.type === 'text' ? part.text : `[${part.type}]`)).join('\n')
}

function chatPart(part: Part): ChatPart {
  if (part.type === 'text') return { type: 'text', text: part.text }
  const { source } = part
  // A handle that the provider issued says by itself what it stands for.
  if (source.type === 'file') return { type: 'file', file: { file_id: source.value } }
  if (part.type === 'image') return { type: 'image_url', image_url: { url: urlOf(source) } }
  if (part.type === 'video') return { type: 'video_url', video_url: { url: urlOf(source) } }
  if (part.type === 'audio' && source.type === 'data') {
    const format = AUDIO_FORMATS.get(source.mimeType) ?? subtypeOf(source.mimeType)
    return { type: 'input_audio', input_audio: { data: source.value, format } }
  }
  return { type: 'file', file: { file_data: urlOf(source), filename: filenameOf(part) } }
}

const AUDIO_FORMATS: ReadonlyMap<string, string> = new Map([
  ['audio/mpeg', 'mp3'],
  ['audio/x-wav', 'wav'],
  ['audio/wave', 'wav'],
  ['audio/mp4', 'm4a'],
])

function subtypeOf(mimeType: string): string {
  return mimeType.replace(/^[^/]*\//, '').replace(/;.*$/, '')
}

function urlOf(source: Source): string {
  return source.type === 'data' ? `data:${source.mimeType};base64,${source.value}` : source.value
}

/** Providers refuse a file without a name. */
function filenameOf({ metadata, source }: Exclude<Part, { type: 'text' }>): string {
  const named: unknown = metadata?.filename ?? metadata?.name
  if (typeof named === 'string' && named !== '') return named
  return `file.${subtypeOf(source.mimeType ?? '') || 'bin'}`
}
