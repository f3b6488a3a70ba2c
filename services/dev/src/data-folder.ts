import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { asError, HoldfastError } from '@holdfast/std'

/**
 * Makes this process the only one on the data folder, until it is disposed or the process ends in
 * whatever way. Node has no file locks of its own; SQLite's are the operating system's, which belong to
 * the living process and not to a number that may be given out again.
 * Throws `conflict` when another one has it.
 */
export async function claimDataFolder(folder: string): Promise<Disposable> {
  const file = join(folder, 'lock')
  let lock: DatabaseSync
  try {
    await mkdir(folder, { recursive: true })
    lock = new DatabaseSync(file)
  } catch (cause) {
    const message = `HOLDFAST_DATA_DIR ${folder} cannot be used: ${asError(cause).message}`
    throw new HoldfastError('invalid', 'unusable_folder', message, { cause })
  }
  try {
    lock.exec('PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE')
  } catch (cause) {
    lock.close()
    const taken = /locked|busy/.test(asError(cause).message)
    const message = taken
      ? `another Holdfast is running on ${folder}: stop it, or set HOLDFAST_DATA_DIR to another folder`
      : `${file} cannot be locked: ${asError(cause).message}`
    throw new HoldfastError('conflict', 'folder_taken', message, { cause })
  }
  return { [Symbol.dispose]: () => lock.close() }
}
