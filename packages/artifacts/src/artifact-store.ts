import type { Readable } from 'node:stream'

/**
 * Where the files of runs are kept. It knows nothing of runs: who may write where, and which file counts, is decided
 * by the lease and by the database. A path is written once and never changed.
 */
export type ArtifactStore = {
  /** For people and logs; no secrets in it. */
  readonly place: string
  /**
   * Streams a body to a new path. When it resolves the file is whole and durable; when it rejects there is no file
   * under this path (something partial may be left beside it, for the collector). The body is read to its end or
   * not at all further; closing it is the caller's.
   */
  put(
    path: string,
    body: AsyncIterable<Uint8Array>,
    mediaType: string,
    signal: AbortSignal,
  ): Promise<{ readonly bytes: number }>
  /** `null`: there is no such file. Whoever opened it reads the body to its end or destroys it. */
  open(path: string, signal?: AbortSignal): Promise<OpenFile | null>
  /** Removes a file, or everything below a folder. Nothing there is no error. */
  remove(pathOrFolder: string, signal?: AbortSignal): Promise<void>
  /** At most `limit` files in the order of their paths, behind `after`. */
  list(after: string, limit: number, signal?: AbortSignal): Promise<StoredFile[]>
}

export type OpenFile = { readonly bytes: number; readonly body: Readable }

export type StoredFile = {
  readonly path: string
  readonly bytes: number
  readonly modifiedAtMs: number
}
