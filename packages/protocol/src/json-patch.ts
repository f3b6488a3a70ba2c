import type { JsonPatch } from '@ag-ui/core'
import jsonPatch from 'fast-json-patch'

/**
 * RFC 6902, all or nothing. The patch is cloned because the library puts its values into the
 * document and lets later operations of the same patch change them there.
 */
export function patched(
  document: unknown,
  patch: JsonPatch,
): { ok: true; document: unknown } | { ok: false } {
  try {
    const { newDocument } = jsonPatch.applyPatch(document, structuredClone(patch), true, false)
    return { ok: true, document: newDocument }
  } catch {
    return { ok: false }
  }
}
