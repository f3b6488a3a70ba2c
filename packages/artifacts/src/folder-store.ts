import type { Dirent } from 'node:fs'
import { type FileHandle, mkdir, open, readdir, rename, rm, rmdir, stat } from 'node:fs/promises'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { invariant } from '@holdfast/std'
import type { ArtifactStore, StoredFile } from './artifact-store.ts'

/** Files in a local folder, which every runner and every BFF must see as the same. Made when it is first needed. */
export function folderStore(folder: string): ArtifactStore {
  const root = resolve(folder)

  function inside(path: string): string {
    const file = resolve(root, path)
    invariant(file.startsWith(root + sep), 'a path stays below its root')
    return file
  }

  return {
    place: root,

    async put(path, body, _mediaType, signal) {
      const file = inside(path)
      const partial = `${file}.partial`
      const handle = await create(partial)
      try {
        const bytes = await write(handle, body, signal)
        await handle.close()
        await rename(partial, file)
        await syncUpTo(root, dirname(file))
        return { bytes }
      } catch (error) {
        await handle.close().catch(() => undefined)
        await rm(partial, { force: true })
        await rm(file, { force: true })
        throw error
      }
    },

    async open(path) {
      const handle = await open(inside(path)).catch(nullIfMissing)
      if (!handle) return null
      try {
        const { size } = await handle.stat()
        // Not further than what was announced; the stream closes the handle, however it ends.
        const range = size === 0 ? {} : { start: 0, end: size - 1 }
        return { bytes: size, body: handle.createReadStream(range) }
      } catch (error) {
        await handle.close()
        throw error
      }
    },

    async remove(pathOrFolder) {
      const target = inside(pathOrFolder)
      await rm(target, { recursive: true, force: true })
      await removeEmptyUpTo(root, dirname(target))
    },

    async list(after, limit) {
      const files: StoredFile[] = []
      for await (const path of walk(root, '', after)) {
        // One that was removed meanwhile is not there any more.
        const found = await stat(join(root, path)).catch(nullIfMissing)
        if (found) files.push({ path, bytes: found.size, modifiedAtMs: found.mtimeMs })
        if (files.length >= limit) break
      }
      return files
    },
  }
}

/** Empty folders are removed by others; then they are made again. */
async function create(file: string): Promise<FileHandle> {
  for (let tries = 0; ; tries += 1) {
    await mkdir(dirname(file), { recursive: true })
    const handle = await open(file, 'wx').catch((error: unknown) => {
      if (tries < 10 && codeOf(error) === 'ENOENT') return null
      throw error
    })
    if (handle) return handle
  }
}

async function write(handle: FileHandle, body: AsyncIterable<Uint8Array>, signal: AbortSignal) {
  let bytes = 0
  for await (const chunk of body) {
    await handle.writeFile(chunk)
    bytes += chunk.byteLength
    signal.throwIfAborted()
  }
  await handle.sync()
  signal.throwIfAborted()
  return bytes
}

/** A new name is durable when its folder is, and a new folder when the one above it is. */
async function syncUpTo(root: string, folder: string): Promise<void> {
  const handle = await open(folder)
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
  if (folder !== root) await syncUpTo(root, dirname(folder))
}

async function removeEmptyUpTo(root: string, folder: string): Promise<void> {
  if (folder === root || relative(root, folder).startsWith('..')) return
  const removed = await rmdir(folder).then(
    () => true,
    () => false,
  )
  if (removed) await removeEmptyUpTo(root, dirname(folder))
}

/** In the order of whole paths: a folder counts with its slash. What lies before `after` is not looked into. */
async function* walk(root: string, below: string, after: string): AsyncGenerator<string> {
  const entries: Dirent[] = await readdir(join(root, below), { withFileTypes: true }).catch(
    (error: unknown) => nullIfMissing(error) ?? [],
  )
  const keys = entries.map((entry) => `${below}${entry.name}${entry.isDirectory() ? '/' : ''}`)
  for (const key of keys.sort((a, b) => (a < b ? -1 : 1))) {
    if (!key.endsWith('/')) {
      if (key > after) yield key
    } else if (key > after || after.startsWith(key)) {
      yield* walk(root, key, after)
    }
  }
}

function nullIfMissing(error: unknown): null {
  if (codeOf(error) === 'ENOENT' || codeOf(error) === 'ENOTDIR') return null
  throw error
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined
}
