/** What a server sent, before anything is known about it. */
export type Fields = Readonly<Record<string, unknown>>

export function fieldsOf(value: unknown): Fields | undefined {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
    ? (value as Fields)
    : undefined
}

/** The objects of a list; nothing else in it counts. */
export function objectsOf(value: unknown): Fields[] {
  if (!Array.isArray(value)) return []
  return value.map(fieldsOf).filter((fields) => fields !== undefined)
}

export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
