import { execFile } from 'node:child_process'
import { readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { wait } from '@holdfast/std'
import * as z from 'zod'

const run = promisify(execFile)

/** A process with what tells it from a later one of the same number. */
const Known = z.object({ pid: z.number().int().min(2), startedAt: z.string().min(1) })
type Known = z.infer<typeof Known>

/** How long the processes of a start that was killed may still drain before they are ended. */
const DRAIN_OF_LEFTOVERS_MS = 3000

/** Notes who was started on this data folder, for the next start to find if this one is killed. */
export function openProcessRecord(folder: string): { add(pid: number): Promise<void> } {
  const file = recordFile(folder)
  const known = new Map<number, string>()
  let writing = Promise.resolve()
  return {
    async add(pid) {
      const startedAt = await startOf(pid)
      if (startedAt) known.set(pid, startedAt)
      // One after the other: the last write holds them all.
      writing = writing.catch(() => {}).then(() => write(file, known))
      await writing
    },
  }
}

/**
 * Ends what a killed start left running: they noticed and are draining, but hold the port and the
 * database that the new start needs. Their runs are taken over like any lost runner's.
 */
export async function endLeftovers(folder: string): Promise<number> {
  const file = recordFile(folder)
  const text = await readFile(file, 'utf8').catch(() => '[]')
  const recorded = z.array(Known).safeParse(safeJson(text)).data ?? []
  const left = await stillRunning(recorded)
  for (const { pid } of left) end(pid, 'SIGTERM')
  let rest = left
  for (let waitedMs = 0; rest.length > 0 && waitedMs < DRAIN_OF_LEFTOVERS_MS; waitedMs += 100) {
    await wait(100)
    rest = await stillRunning(rest)
  }
  for (const { pid } of rest) end(pid, 'SIGKILL')
  await rm(file, { force: true })
  return left.length
}

async function stillRunning(processes: readonly Known[]): Promise<Known[]> {
  const starts = await Promise.all(processes.map(({ pid }) => startOf(pid)))
  return processes.filter((known, index) => known.startedAt === starts[index])
}

async function startOf(pid: number): Promise<string | undefined> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined)
  // The name in parentheses may hold anything; the start time is the 20th field after it.
  if (stat !== undefined) return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
  if (process.platform === 'linux') return undefined
  const { stdout } = await run('ps', ['-o', 'lstart=', '-p', String(pid)]).catch(() => ({
    stdout: '',
  }))
  return stdout.trim() || undefined
}

function end(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error
  }
}

async function write(file: string, known: ReadonlyMap<number, string>): Promise<void> {
  const list = [...known].map(([pid, startedAt]) => ({ pid, startedAt }))
  await writeFile(`${file}.new`, JSON.stringify(list))
  await rename(`${file}.new`, file)
}

function safeJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Half a file is no record.
    return undefined
  }
}

function recordFile(folder: string): string {
  return join(folder, 'processes.json')
}
