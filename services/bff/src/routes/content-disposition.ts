/** RFC 6266: the name for browsers that know UTF-8, and something readable for those that do not. */
export function contentDisposition(kind: 'inline' | 'attachment', name: string | null): string {
  if (name === null) return kind
  const plain = name.replace(/[^\x20-\x7e]|["\\%]/g, '_')
  const encoded = encodeURIComponent(name).replace(
    /['()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  )
  return `${kind}; filename="${plain}"; filename*=UTF-8''${encoded}`
}
