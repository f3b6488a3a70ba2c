import { HoldfastError, unlessAborted, within } from '@holdfast/std'

/** What an agent may give: text, bytes, or a stream of either (Node's Readable and web streams are such). */
export type ArtifactBody = string | Uint8Array | AsyncIterable<Uint8Array | string>

/** A body as a store reads it. Disposing closes the source, whether it was read or not. */
export type OpenBody = AsyncIterable<Uint8Array> & AsyncDisposable

/** A source that does not close is left to itself; nothing of it is written any more. */
const CLOSE_MS_MAX = 1000

/**
 * Reads `body` chunk by chunk. An abort ends it also while the source is silent.
 * @throws HoldfastError too_large/artifact_too_large when it passes `bytesMax`; invalid/invalid_artifact for what
 *   is neither bytes nor text
 */
export function openBody(
  body: ArtifactBody,
  { bytesMax, signal }: { bytesMax: number; signal: AbortSignal },
): OpenBody {
  const source = sourceOf(body)
  let over = false

  async function* chunks() {
    let bytes = 0
    for (;;) {
      const next = await unlessAborted(source.next(), signal)
      if (next.done) break
      const chunk = asBytes(next.value)
      bytes += chunk.byteLength
      if (bytes > bytesMax) {
        throw new HoldfastError('too_large', 'artifact_too_large', `more than ${bytesMax} bytes`)
      }
      yield chunk
    }
    over = true
  }

  return {
    [Symbol.asyncIterator]: chunks,
    async [Symbol.asyncDispose]() {
      if (over) return
      over = true
      // A generator's return() waits behind its pending read; a stream's destroy() does not.
      if (isDestroyable(body)) body.destroy()
      const closed = Promise.resolve(source.return?.())
      await within(
        CLOSE_MS_MAX,
        closed.catch(() => undefined),
      )
    },
  }
}

function sourceOf(body: ArtifactBody): AsyncIterator<Uint8Array | string> {
  if (typeof body === 'string' || body instanceof Uint8Array) return once(body)
  if (typeof body?.[Symbol.asyncIterator] !== 'function') throw notBytes()
  return body[Symbol.asyncIterator]()
}

async function* once(chunk: Uint8Array | string) {
  yield chunk
}

function asBytes(chunk: unknown): Uint8Array {
  if (typeof chunk === 'string') return Buffer.from(chunk)
  if (chunk instanceof Uint8Array) return chunk
  throw notBytes()
}

function notBytes() {
  const expected = 'an artifact is text, bytes, or an async iterable of them'
  return new HoldfastError('invalid', 'invalid_artifact', expected)
}

function isDestroyable(body: object | string): body is { destroy(): void } {
  return typeof body === 'object' && 'destroy' in body && typeof body.destroy === 'function'
}
