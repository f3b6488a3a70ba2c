import { readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { HoldfastError, wait } from '@holdfast/std'
import { runProgram } from './run-program.ts'

/** Fast shutdown, then without ceremony, then by force; milliseconds that each is given. */
const STOP_STEPS = [
  { signal: 'SIGINT', graceMs: 10_000 },
  { signal: 'SIGQUIT', graceMs: 5_000 },
  { signal: 'SIGKILL', graceMs: 5_000 },
] as const

/**
 * Ends the server that a killed start left on this data folder. The caller holds the folder's lock, so
 * nobody living owns it. A pid file whose number belongs to some other process by now is removed.
 */
export async function endOrphan(dataFolder: string): Promise<'none' | 'ended'> {
  const pidFile = join(dataFolder, 'postmaster.pid')
  const pid = await recordedPid(pidFile)
  if (pid === undefined || !alive(pid)) return 'none'
  if (!(await serves(pid, dataFolder))) {
    await rm(pidFile, { force: true })
    return 'none'
  }
  for (const { signal, graceMs } of STOP_STEPS) {
    if (!alive(pid)) return 'ended'
    process.kill(pid, signal)
    for (let waitedMs = 0; waitedMs < graceMs && alive(pid); waitedMs += 50) await wait(50)
  }
  if (!alive(pid)) return 'ended'
  const message = `PostgreSQL (process ${pid}) still runs on ${dataFolder} and cannot be ended`
  throw new HoldfastError('unavailable', 'orphan_lives', message)
}

async function recordedPid(file: string): Promise<number | undefined> {
  const text = await readFile(file, 'utf8').catch(() => '')
  const pid = Number(text.split('\n')[0])
  return Number.isInteger(pid) && pid > 1 ? pid : undefined
}

/** Its command line names our folder: the number alone may have been given to anything since. */
async function serves(pid: number, dataFolder: string): Promise<boolean> {
  const fromProc = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => undefined)
  if (fromProc !== undefined) return fromProc.split('\0').includes(dataFolder)
  const { stdout } = await runProgram('ps', ['-o', 'command=', '-p', String(pid)])
  return stdout.includes(` -D ${dataFolder} `)
}

function alive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM'
  }
}
