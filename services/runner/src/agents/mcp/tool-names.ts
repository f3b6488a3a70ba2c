import { createHash } from 'node:crypto'

/** What every provider takes as a function's name. */
const NAME_CHARS_MAX = 64

/**
 * The names under which the tools of all servers are offered, `SERVER__TOOL`: unique, in letters, digits, `_` and `-`
 * alone, and short enough. A name that cannot stay as it is ends with a mark of what it was.
 */
export function offeredNames<T>(
  tools: readonly { readonly server: string; readonly tool: string; readonly value: T }[],
): Map<string, T> {
  const offered = new Map<string, T>()
  for (const { server, tool, value } of tools) {
    const wanted = `${server}__${tool}`
    const plain = wanted.replaceAll(/[^A-Za-z0-9_-]/g, '_')
    const fits = plain.length <= NAME_CHARS_MAX && !offered.has(plain)
    offered.set(fits ? plain : marked(plain, wanted), value)
  }
  return offered
}

function marked(plain: string, wanted: string): string {
  const mark = createHash('sha256').update(wanted).digest('hex').slice(0, 8)
  return `${plain.slice(0, NAME_CHARS_MAX - mark.length - 1)}_${mark}`
}
