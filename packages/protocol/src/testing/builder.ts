import type { Metadata } from '@ag-ui/core'
import type { AgUiEvent } from '../event.ts'
import type { Fold } from '../fold.ts'

export type Dice = { a: number; b: number; text: string }

/** A log being made; `fold` covers what it holds so far. */
export type Builder = {
  fold: Fold
  events: AgUiEvent[]
  add(...events: AgUiEvent[]): void
  mint(prefix: string): string
  /** Owners of reasoning, which the verifier remembers by id. */
  owners: Map<string, string | undefined>
  /** Whether an activity may take the id of another message, and the other way round. */
  collides: boolean
}

export function metadataOf({ a, text }: Dice): { metadata?: Metadata } {
  if (a % 4 !== 0) return {}
  return { metadata: a % 8 === 0 ? { usage: a } : { note: text, deep: { a } } }
}
