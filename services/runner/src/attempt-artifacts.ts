import { type ArtifactBody, type ArtifactStore, artifactPath, openBody } from '@holdfast/artifacts'
import { LIMITS } from '@holdfast/protocol'
import { asError, HoldfastError, within } from '@holdfast/std'
import type { ArtifactPointer, Lease } from '@holdfast/store'
import { AgentFailure } from './agents/agent.ts'

/** The files of one attempt. Nobody sees them before the attempt's fenced finish has named them. */
export type AttemptArtifacts = {
  /** What is whole and durable; of one name only what was written last. */
  readonly written: readonly ArtifactPointer[]
  write(name: string, options: { mediaType: string }, body: ArtifactBody): Promise<void>
  /** Breaks off what is under way and accepts nothing more; resolves when nothing of it is left, or after a bound. */
  close(): Promise<void>
}

const CLOSE_MS_MAX = 5000
const MEDIA_TYPE =
  /^[\w!#$&^.+-]{1,127}\/[\w!#$&^.+-]{1,127}(\s*;\s*[\w-]+=("[^"\\\r\n]*"|[\w.+-]+))*$/

export function attemptArtifacts(
  store: ArtifactStore,
  lease: Lease,
  signal: AbortSignal,
): AttemptArtifacts {
  const closing = new AbortController()
  const over = AbortSignal.any([signal, closing.signal])
  const written = new Map<string, ArtifactPointer>()
  const writing = new Set<string>()
  const uploads = new Set<Promise<void>>()
  let count = 0

  async function uploaded(name: string, mediaType: string, body: ArtifactBody) {
    await using source = openBody(body, { bytesMax: LIMITS.artifactBytesMax, signal: over })
    over.throwIfAborted()
    check(name, mediaType)
    if (writing.has(name)) throw invalid(`${name} is being written already`)
    if (!written.has(name) && written.size + writing.size >= LIMITS.artifactsMax) {
      throw new AgentFailure('limit_exceeded', `a run has at most ${LIMITS.artifactsMax} artifacts`)
    }
    count += 1
    writing.add(name)
    try {
      const path = artifactPath(lease, count, name)
      const { bytes } = await store.put(path, source, mediaType, over)
      over.throwIfAborted()
      written.set(name, { name, path, mediaType, bytes })
    } catch (error) {
      over.throwIfAborted()
      throw failureOf(name, error)
    } finally {
      writing.delete(name)
    }
  }

  return {
    get written() {
      return [...written.values()]
    },
    write(name, { mediaType }, body) {
      const upload = uploaded(name, mediaType, body)
      uploads.add(upload)
      // An agent that did not wait for it must not take the process with it.
      upload.catch(() => undefined).finally(() => uploads.delete(upload))
      return upload
    },
    async close() {
      closing.abort(new Error('the attempt is over'))
      await within(CLOSE_MS_MAX, Promise.allSettled(uploads))
    },
  }
}

/** A name is a file name: it stands in URLs and in what browsers save. */
function check(name: string, mediaType: string): void {
  const bytes = Buffer.byteLength(name)
  if (bytes === 0 || bytes > LIMITS.artifactNameBytesMax) {
    throw invalid(`a name has 1 to ${LIMITS.artifactNameBytesMax} bytes`)
  }
  if (/[\p{Cc}/\\]/u.test(name) || !name.isWellFormed() || /^\.{1,2}$/.test(name)) {
    throw invalid('a name is that of a file: no slashes, no control characters, not . or ..')
  }
  if (!MEDIA_TYPE.test(mediaType)) throw invalid('mediaType is one such as text/plain')
}

function invalid(message: string): HoldfastError {
  return new HoldfastError('invalid', 'invalid_artifact', message)
}

/** What went wrong, in the words in which a run ends if the agent does not handle it. */
function failureOf(name: string, cause: unknown): Error {
  const error = asError(cause)
  if (error instanceof HoldfastError && error.kind === 'invalid') return error
  if (error instanceof HoldfastError && error.code === 'artifact_too_large') {
    return new AgentFailure('limit_exceeded', `artifact ${name} has ${error.message}`)
  }
  return new AgentFailure('internal', `artifact ${name} could not be stored`, { cause })
}
