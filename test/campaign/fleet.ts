import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { asError, wait, within } from '@holdfast/std'
import { type CuttingProxy, startCuttingProxy } from '../support/cutting-proxy.ts'
import { type DatabaseProxy, openDatabaseProxy } from '../support/database-proxy.ts'
import { type Child, startChild } from '../support/processes.ts'
import type { Random } from '../support/seeded.ts'

/** Why the campaign itself would have a process end. */
export type Doom = 'killed' | 'drained' | 'stalled'

type Exit = { pid: number; code: number | null; signal: string | null; dooms: Set<Doom> }

/** A place in the fleet: a process, and the next one when that dies. */
export type Slot = {
  readonly name: string
  readonly service: 'bff' | 'runner'
  /** This process's own network to the database. */
  readonly network: DatabaseProxy
  /** Null while nothing runs here. */
  readonly child: Child | null
  readonly exits: readonly Exit[]
  /** Where a BFF answers: directly, and through a network that cuts answers. */
  readonly urls: readonly string[]
  readonly starts: number
  /** Says that the present process may end in this way, before it is made to. */
  doom(how: Doom): void
  /** Sets this process's wall clock off; null: this place has the machine's clock. */
  readonly skewClock: ((seconds: number) => Promise<void>) | null
}

export type Fleet = {
  readonly bffs: readonly Slot[]
  readonly runners: readonly Slot[]
  /** SIGTERM to all, and what did not end well of that; from here on nobody is replaced. */
  stop(): Promise<string[]>
  /** Everything that the processes of one place logged. */
  logs(): { name: string; log: string }[]
}

const STOP_MS = 25_000
const FAKETIME = ['x86_64', 'aarch64']
  .map((machine) => `/usr/lib/${machine}-linux-gnu/faketime/libfaketimeMT.so.1`)
  .find((path) => existsSync(path))
const BLOCKER = new URL('./block-on-message.ts', import.meta.url).href

export type FleetOptions = {
  databaseUrl: string
  bffs: number
  runners: number
  env: Record<string, string>
  random: Random
}

/** Starts every place and keeps it filled. The last one of each service has a clock that can be set. */
export async function startFleet(
  options: FleetOptions,
  cleanup: AsyncDisposableStack,
): Promise<Fleet> {
  const slots: RunningSlot[] = []
  for (const service of ['bff', 'runner'] as const) {
    const count = service === 'bff' ? options.bffs : options.runners
    for (let n = 1; n <= count; n += 1) {
      slots.push(await openSlot(service, n, n === count, options, cleanup))
    }
  }
  await Promise.all(slots.map((slot) => slot.filled))
  return {
    bffs: slots.filter(({ service }) => service === 'bff'),
    runners: slots.filter(({ service }) => service === 'runner'),
    stop: async () => (await Promise.all(slots.map((slot) => slot.stop()))).flat(),
    logs: () => slots.flatMap(({ name, children }) => children.map((child) => logOf(name, child))),
  }
}

type RunningSlot = Slot & {
  readonly filled: Promise<void>
  readonly children: readonly Child[]
  stop(): Promise<string[]>
}

async function openSlot(
  service: 'bff' | 'runner',
  n: number,
  hasOwnClock: boolean,
  options: FleetOptions,
  cleanup: AsyncDisposableStack,
): Promise<RunningSlot> {
  const network = cleanup.use(await openDatabaseProxy(options.databaseUrl))
  const clock = hasOwnClock ? await openClock(cleanup) : null
  const children: Child[] = []
  const exits: Exit[] = []
  const filled = Promise.withResolvers<void>()
  let front: CuttingProxy | null = null
  let child: Child | null = null
  let dooms = new Set<Doom>()
  let starts = 0
  let stopping = false
  const env = {
    ...options.env,
    ...clock?.env,
    DATABASE_URL: network.through(options.databaseUrl),
    ...(service === 'bff'
      ? { PORT: '0' }
      : { RUNNER_METRICS_PORT: '0', NODE_OPTIONS: `--import=${BLOCKER}` }),
  }

  async function fill() {
    starts += 1
    const started = await startChild(service, env)
    if (service === 'bff') {
      await front?.[Symbol.asyncDispose]()
      front = await cutting(`http://127.0.0.1:${String(started.ready['port'])}`, options.random)
    }
    dooms = new Set()
    child = started
    children.push(started)
    if (stopping) started.kill('SIGTERM')
    filled.resolve()
    const end = await started.exited
    child = null
    exits.push({ pid: started.pid, ...end, dooms })
  }

  const keeping = (async () => {
    while (!stopping) {
      // A service whose database is away when it starts may give up; whoever runs it tries again.
      await fill().catch((error: unknown) => {
        if (starts > 1000) throw asError(error)
      })
      await wait(100)
    }
  })()
  keeping.catch(filled.reject)
  cleanup.defer(async () => {
    stopping = true
    child?.kill('SIGKILL')
    await front?.[Symbol.asyncDispose]()
  })

  return {
    name: `${service} ${n}`,
    service,
    network,
    exits,
    children,
    filled: filled.promise,
    skewClock: clock?.skew ?? null,
    get child() {
      return child
    },
    get starts() {
      return starts
    },
    get urls() {
      if (!child || !front) return []
      return [`http://127.0.0.1:${String(child.ready['port'])}`, front.url]
    },
    doom(how) {
      dooms.add(how)
    },
    async stop() {
      stopping = true
      dooms.add('drained')
      child?.kill('SIGCONT')
      child?.kill('SIGTERM')
      const ended = await within(
        STOP_MS,
        keeping.then(() => true),
      )
      network.restore()
      const pid = child?.pid
      child?.kill('SIGKILL')
      return ended ? [] : [`${service} ${n} (pid ${pid}) did not end within ${STOP_MS} ms`]
    },
  }
}

/** Cuts one answer in three, somewhere. */
function cutting(url: string, random: Random): Promise<CuttingProxy> {
  return startCuttingProxy(url, {
    cutAfterBytes: () => (random.chance(1 / 3) ? random.whole(200, 20_000) : null),
  })
}

/** A wall clock of one's own by Debian's libfaketime; the monotonic one goes on as it is. */
async function openClock(cleanup: AsyncDisposableStack) {
  if (!FAKETIME) throw new Error('libfaketime is needed: apt-get install faketime')
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-clock-'))
  cleanup.defer(() => rm(folder, { recursive: true, force: true }))
  const file = join(folder, 'offset')
  const skew = (seconds: number) => writeFile(file, `${seconds < 0 ? '' : '+'}${seconds}\n`)
  await skew(0)
  return {
    skew,
    env: {
      LD_PRELOAD: FAKETIME,
      FAKETIME_TIMESTAMP_FILE: file,
      FAKETIME_CACHE_DURATION: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
      DONT_FAKE_MONOTONIC: '1',
    },
  }
}

function logOf(name: string, child: Child) {
  return { name: `${name} ${child.pid}`, log: child.log() }
}
