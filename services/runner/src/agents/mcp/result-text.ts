import type { CallToolResult } from '@modelcontextprotocol/sdk/types.js'
import { RESULT_CHARS_MAX } from './mcp-limits.ts'

/** A tool's result in the words that a model gets: chat completions take nothing but text from tools. */
export function resultText({ content, structuredContent, isError }: CallToolResult): string {
  const parts = content.map(partText).filter((text) => text !== '')
  const text =
    parts.length === 0 && structuredContent ? JSON.stringify(structuredContent) : parts.join('\n')
  if (text === '') return isError ? 'Error: the tool failed.' : 'Done.'
  return shortened(text)
}

function partText(part: CallToolResult['content'][number]): string {
  switch (part.type) {
    case 'text':
      return part.text
    case 'resource':
      return 'text' in part.resource ? part.resource.text : `[file ${part.resource.uri}]`
    case 'resource_link':
      return `[${part.name}](${part.uri})`
    default:
      return `[${part.type} ${part.mimeType}, ${part.data.length} characters of base64]`
  }
}

/** Never within a character. */
function shortened(text: string): string {
  if (text.length <= RESULT_CHARS_MAX) return text
  const beginning = text
    .slice(0, RESULT_CHARS_MAX)
    .toWellFormed()
    .replace(/\uFFFD$/, '')
  return `${beginning}\n[${text.length - beginning.length} more characters were left out.]`
}
