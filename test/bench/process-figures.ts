import { readdir, readFile } from 'node:fs/promises'

/** Linux counts processor time in these, whatever the kernel was built with. */
const TICKS_PER_SECOND = 100

/** Seconds of processor time that a process has used so far, all its threads together. */
export async function cpuSeconds(pid: number): Promise<number> {
  const { own } = await timesOf(pid)
  return own / TICKS_PER_SECOND
}

/** The same of a PostgreSQL server: its postmaster, its sessions, and those that have ended. */
export async function serverCpuSeconds(postmaster: number): Promise<number> {
  const { own, ended } = await timesOf(postmaster)
  const children = await childrenOf(postmaster)
  const running = await Promise.all(children.map((pid) => timesOf(pid).then((times) => times.own)))
  return (own + ended + running.reduce((sum, ticks) => sum + ticks, 0)) / TICKS_PER_SECOND
}

export async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')
  return Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1] ?? Number.NaN) * 1024
}

/** Processor time of the whole machine that was not idle, for telling how quiet it was. */
export async function machineBusySeconds(): Promise<number> {
  const [line = ''] = (await readFile('/proc/stat', 'utf8')).split('\n')
  const [user = 0, nice = 0, system = 0, , , irq = 0, soft = 0] = line
    .split(/\s+/)
    .slice(1)
    .map(Number)
  return (user + nice + system + irq + soft) / TICKS_PER_SECOND
}

async function childrenOf(parent: number): Promise<number[]> {
  const names = await readdir('/proc')
  const parents = await Promise.all(
    names
      .filter((name) => /^\d+$/.test(name))
      .map(async (name) => ({ pid: Number(name), ...(await timesOf(Number(name))) })),
  )
  return parents.filter((process) => process.parent === parent).map(({ pid }) => pid)
}

/** A process that ends while it is looked at has used nothing. */
async function timesOf(pid: number) {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  // The name, in brackets, may hold anything.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const at = (index: number) => Number(fields[index] ?? 0)
  return { parent: at(1), own: at(11) + at(12), ended: at(13) + at(14) }
}
