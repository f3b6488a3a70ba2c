/** A page's end as an opaque word: pages go by id, newest first. */
export function asCursor(id: string): string {
  return Buffer.from(id).toString('base64url')
}

/** `null`: from the start. `'bad'`: not a cursor of ours. */
export function fromCursor(cursor: string | undefined): string | null | 'bad' {
  if (cursor === undefined) return null
  const id = Buffer.from(cursor, 'base64url').toString()
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id) ? id : 'bad'
}
