import type { UserMessage } from '@holdfast/protocol'

const TITLE_CODE_POINTS_MAX = 80

/** The beginning of the first message, cut between code points; null when it has no text. */
export function titleOf(message: UserMessage): string | null {
  const text =
    typeof message.content === 'string'
      ? message.content
      : message.content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join(' ')
  const points = Array.from(text.trim().replace(/\s+/g, ' '))
  if (points.length === 0) return null
  return points.length <= TITLE_CODE_POINTS_MAX
    ? points.join('')
    : `${points.slice(0, TITLE_CODE_POINTS_MAX - 1).join('')}…`
}
