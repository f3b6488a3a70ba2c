import { omitOptionalNulls } from '@ag-ui/core'
import type { AgUiEvent } from './event.ts'

const REPLACEMENT = '\uFFFD'

/**
 * NUL and lone surrogates, which PostgreSQL refuses in text and JSON, become U+FFFD in every
 * string and key. A value that is clean comes back as it is, not copied.
 */
export function sanitize<T>(value: T): T {
  return clean(value) as T
}

/** An event without `rawEvent` and without optional fields that are null; payloads stay. */
export function withoutNulls<E extends AgUiEvent>(event: E): E {
  const whole = omitOptionalNulls(event, 'Event')
  if (!('rawEvent' in whole)) return whole
  const { rawEvent: _, ...rest } = whole
  return rest as unknown as E
}

/**
 * Puts surrogate pairs together that a producer cut between two deltas. `push` gives what may be
 * sent of the deltas so far; `end` what is left when the message with this id is over.
 */
export function joinSurrogates(): {
  push(id: string, delta: string): string
  end(id: string): string
} {
  const held = new Map<string, string>()
  return {
    push(id, delta) {
      const text = (held.get(id) ?? '') + delta
      const last = text.charCodeAt(text.length - 1)
      if (last < 0xd800 || last > 0xdbff || text === '') {
        held.delete(id)
        return text
      }
      held.set(id, text.slice(-1))
      return text.slice(0, -1)
    },
    end(id) {
      const alone = held.delete(id)
      return alone ? REPLACEMENT : ''
    },
  }
}

function clean(value: unknown): unknown {
  if (typeof value === 'string') return cleanText(value)
  if (typeof value !== 'object' || value === null) return value
  if (Array.isArray(value)) {
    const items = value.map(clean)
    return items.some((item, index) => item !== value[index]) ? items : value
  }
  let changed = false
  const entries = Object.entries(value).map(([key, field]) => {
    const entry = [cleanText(key), clean(field)] as const
    changed ||= entry[0] !== key || entry[1] !== field
    return entry
  })
  return changed ? Object.fromEntries(entries) : value
}

function cleanText(text: string): string {
  const wellFormed = text.isWellFormed() ? text : text.toWellFormed()
  return wellFormed.includes('\u0000') ? wellFormed.replaceAll('\u0000', REPLACEMENT) : wellFormed
}
