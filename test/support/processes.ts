import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const START_MS = 30_000

/** A service of ours as a real child process. */
export type Child = {
  readonly pid: number
  readonly exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>
  /** What it told its parent when it was ready. */
  readonly ready: Record<string, unknown>
  kill(signal: NodeJS.Signals): void
  /** Says something to it over IPC. */
  tell(message: object): void
  /** The next thing that it says over IPC and for which this is true; fails when it ends first. */
  hears(what: (message: Record<string, unknown>) => boolean): Promise<Record<string, unknown>>
  /** Everything that it logged so far. */
  log(): string
}

/** Starts a service, from another entry or with arguments if they are given, and resolves when it says over IPC that it is ready. */
export async function startChild(
  service: 'bff' | 'runner',
  env: Record<string, string>,
  script: string | readonly string[] = `services/${service}/src/main.ts`,
): Promise<Child> {
  const child = spawn(process.execPath, ['--conditions=holdfast-source', ...[script].flat()], {
    cwd: ROOT,
    env: { PATH: process.env['PATH'], ...env },
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    detached: true,
  })
  const chunks: string[] = []
  for (const stream of [child.stdout, child.stderr]) {
    stream?.setEncoding('utf8').on('data', (text: string) => chunks.push(text))
  }
  const exited = once(child, 'exit').then(([code, signal]) => ({
    code: code as number | null,
    signal: signal as NodeJS.Signals | null,
  }))
  const log = () => chunks.join('')
  let started = false
  const ready = await Promise.race([
    once(child, 'message').then(([message]) => {
      started = true
      return message as Record<string, unknown>
    }),
    exited.then(({ code, signal }) => {
      throw new Error(`${service} ended while starting (${code ?? signal}):\n${log()}`)
    }),
    deadline(START_MS, () => {
      if (!started) child.kill('SIGKILL')
      return new Error(`${service} did not start within ${START_MS} ms:\n${log()}`)
    }),
  ])
  return {
    pid: pidOf(child),
    exited,
    ready,
    kill: (signal) => child.kill(signal),
    tell: (message) => void (child.connected && child.send(message)),
    hears: (what) => messageOf(child, what),
    log,
  }
}

function messageOf(child: ChildProcess, what: (message: Record<string, unknown>) => boolean) {
  const { promise, resolve, reject } = Promise.withResolvers<Record<string, unknown>>()
  const onMessage = (message: unknown) => {
    if (what(message as Record<string, unknown>)) resolve(message as Record<string, unknown>)
  }
  const onExit = () =>
    reject(new Error(`pid ${child.pid} ended before it said what was waited for`))
  child.on('message', onMessage).once('exit', onExit)
  promise.catch(() => undefined).finally(() => child.off('message', onMessage).off('exit', onExit))
  return promise
}

/** Rejects after `ms`; the timer keeps nothing alive. */
export function deadline(ms: number, error: () => Error): Promise<never> {
  return new Promise((_resolve, reject) => {
    setTimeout(() => reject(error()), ms).unref()
  })
}

function pidOf(child: ChildProcess): number {
  if (child.pid === undefined) throw new Error('the child has no pid')
  return child.pid
}
