import { HoldfastError } from '@holdfast/std'
import { runProgram } from './run-program.ts'

/** The unprivileged account that the server runs as, because PostgreSQL refuses root. */
export type Account = { readonly uid: number; readonly gid: number }

/** `undefined` where this process is unprivileged itself; made when root has no `postgres` user yet. */
export async function serverAccount(): Promise<Account | undefined> {
  if (process.getuid?.() !== 0) return undefined
  const known = await lookUp('postgres')
  if (known) return known
  const made = await runProgram('useradd', [
    '--system',
    '--user-group',
    '--no-create-home',
    'postgres',
  ])
  // Two first starts at once: when ours fails, the other one may have made it meanwhile.
  const found = (await lookUp('postgres')) ?? (await lookUp('nobody'))
  if (found) return found
  const message = `PostgreSQL refuses to run as root and no user could be made for it: ${made.stderr}`
  throw new HoldfastError('unavailable', 'no_account', message)
}

/** Whether the account can enter this folder, or run this program. */
export async function mayEnter(path: string, account: Account | undefined): Promise<boolean> {
  const args = ['-c', 'test -x "$1"', 'sh', path]
  const { ok } = await runProgram('/bin/sh', args, { ...account, cwd: '/' })
  return ok
}

async function lookUp(user: string): Promise<Account | undefined> {
  const [uid, gid] = await Promise.all([
    runProgram('id', ['-u', user]),
    runProgram('id', ['-g', user]),
  ])
  if (!uid.ok || !gid.ok) return undefined
  return { uid: Number(uid.stdout), gid: Number(gid.stdout) }
}
