import { randomBytes } from 'node:crypto'
import {
  chmod,
  chown,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { HoldfastError } from '@holdfast/std'
import { type Account, mayEnter, serverAccount } from './account.ts'
import { type Binaries, findBinaries } from './binaries.ts'
import { runProgram } from './run-program.ts'

/** A database folder that is ready to be served. */
export type Cluster = {
  readonly folder: string
  readonly dataFolder: string
  readonly password: string
  readonly binaries: Binaries
  readonly account: Account | undefined
}

/**
 * Prepares `folder/postgres`: made at the first call, complete or not at all, with a random password
 * that stays inside it. Throws `unavailable` with one line for people when the folder cannot serve.
 */
export async function openCluster(folder: string, signal: AbortSignal): Promise<Cluster> {
  const root = resolve(folder)
  const account = await serverAccount()
  await mkdir(root, { recursive: true })
  await admit(root, account)
  const binaries = await findBinaries(root, account)
  const dataFolder = join(root, 'postgres')
  signal.throwIfAborted()
  const version = await read(join(dataFolder, 'PG_VERSION'))
  if (version === undefined) await initialise(root, dataFolder, binaries, account)
  else if (version !== binaries.major) throw wrongVersion(dataFolder, version, binaries.major)
  const password = await read(join(dataFolder, 'holdfast.password'))
  if (password === undefined) {
    throw new HoldfastError(
      'unavailable',
      'foreign_cluster',
      `${dataFolder} was not made by Holdfast`,
    )
  }
  return { folder: root, dataFolder, password, binaries, account }
}

/** Root's own new folders let nobody in; the data folder itself may be opened, those above it not. */
async function admit(root: string, account: Account | undefined): Promise<void> {
  if (!account || (await mayEnter(root, account))) return
  const wall = await outermostWall(root, account)
  if (wall !== root) {
    const message = `the user that PostgreSQL runs as cannot enter ${wall}: set HOLDFAST_DATA_DIR to a folder outside it`
    throw new HoldfastError('unavailable', 'unreachable_folder', message)
  }
  await chown(root, 0, account.gid)
  await chmod(root, (await stat(root)).mode | 0o010)
}

async function outermostWall(path: string, account: Account): Promise<string> {
  const above = dirname(path)
  if (above === path || (await mayEnter(above, account))) return path
  return outermostWall(above, account)
}

/** Built beside its place and renamed, so that what was interrupted is never taken for a database. */
async function initialise(
  root: string,
  dataFolder: string,
  binaries: Binaries,
  account: Account | undefined,
): Promise<void> {
  for (const name of await readdir(root)) {
    if (name.startsWith('postgres.new-'))
      await rm(join(root, name), { recursive: true, force: true, maxRetries: 3 })
  }
  const unfinished = join(root, `postgres.new-${randomBytes(4).toString('hex')}`)
  await mkdir(unfinished, { mode: 0o700 })
  const passwordFile = `${unfinished}.password`
  await writeFile(passwordFile, randomBytes(24).toString('base64url'), { mode: 0o600 })
  if (account) {
    await chown(unfinished, account.uid, account.gid)
    await chown(passwordFile, account.uid, account.gid)
  }
  const place = [`--pgdata=${unfinished}`, '--username=holdfast', `--pwfile=${passwordFile}`]
  // PostgreSQL's own C.UTF-8 behaves the same on every machine, whatever locales it has.
  const locale = ['--locale=C', '--locale-provider=builtin', '--builtin-locale=C.UTF-8']
  const args = [...place, ...locale, '--encoding=UTF8', '--auth=scram-sha-256']
  const env = { LC_ALL: 'C', TZ: 'UTC' }
  const made = await runProgram(binaries.initdb, args, { ...account, cwd: '/', env })
  if (!made.ok) {
    await rm(unfinished, { recursive: true, force: true })
    await rm(passwordFile, { force: true })
    const message = `the database folder cannot be made: ${made.stderr.split('\n').join(' ')}`
    throw new HoldfastError('unavailable', 'initdb_failed', message)
  }
  await rename(passwordFile, join(unfinished, 'holdfast.password'))
  await rename(unfinished, dataFolder)
}

async function read(file: string): Promise<string | undefined> {
  try {
    return (await readFile(file, 'utf8')).trim()
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined
    throw error
  }
}

function wrongVersion(dataFolder: string, found: string, needed: string): HoldfastError {
  const message = `${dataFolder} was written by PostgreSQL ${found}, this is ${needed}: dump and restore it, or set HOLDFAST_DATA_DIR to a new folder`
  return new HoldfastError('unavailable', 'wrong_version', message)
}
