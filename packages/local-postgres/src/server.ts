import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { join } from 'node:path'
import type { Writable } from 'node:stream'
import { fileURLToPath } from 'node:url'
import { HoldfastError, invariant, wait } from '@holdfast/std'
import type { Cluster } from './cluster.ts'
import type { KeeperNews, Orders } from './orders.ts'
import { endOrphan } from './orphan.ts'

const START_TRIES = 10
/** Start-up troubles that pass: the picked port went to somebody else, a killed server's last processes end. */
const PASSING = /Address already in use|could not bind|pre-existing shared memory block/

/** A running PostgreSQL. Disposing stops it and resolves when nothing of it is left. */
export type PostgresServer = AsyncDisposable & {
  readonly url: string
  /**
   * Handed to a child as a file descriptor, it keeps the server up until that child has ended too,
   * even if this process is killed.
   */
  readonly hold: Writable
  /** Rejects when the server is gone for good without having been asked to stop. */
  readonly failed: Promise<never>
}

/**
 * Serves the cluster on a free port of 127.0.0.1; the caller sees to it that it is the only one.
 * A server that dies by itself comes back on the same port.
 * @param options.settings server settings, as in postgresql.conf
 * @param options.removeFolder removed after the stop
 */
export async function startServer(
  cluster: Cluster,
  options: { settings: Record<string, string>; removeFolder?: string; onRestart?: () => void },
  signal: AbortSignal,
): Promise<PostgresServer> {
  await endOrphan(cluster.dataFolder)
  for (let tries = 1; ; tries += 1) {
    signal.throwIfAborted()
    const port = await freePort()
    const outcome = await launch(cluster, port, options)
    if (outcome.kind === 'ready') {
      const { keeper, hold } = outcome
      const url = `postgres://holdfast:${cluster.password}@127.0.0.1:${port}/postgres`
      return { url, hold, ...ending(keeper, hold) }
    }
    if (tries === START_TRIES || !PASSING.test(outcome.log)) {
      const message = `PostgreSQL does not start: ${lastComplaint(outcome.log)} (see ${logFile(cluster)})`
      throw new HoldfastError('unavailable', 'postgres_failed', message)
    }
    await wait(500, signal)
  }
}

async function launch(
  cluster: Cluster,
  port: number,
  options: { settings: Record<string, string>; removeFolder?: string; onRestart?: () => void },
) {
  const { account, binaries, dataFolder } = cluster
  const only = { listen_addresses: '127.0.0.1', unix_socket_directories: '' }
  const orders: Orders = {
    postgres: binaries.postgres,
    dataFolder,
    logFile: logFile(cluster),
    port,
    settings: { ...options.settings, ...only },
    ...(account ? { account } : {}),
    ...(options.removeFolder ? { removeFolder: options.removeFolder } : {}),
  }
  const keeper = spawn(process.execPath, [keeperFile(), JSON.stringify(orders)], {
    detached: true,
    cwd: '/',
    stdio: ['pipe', 'ignore', 'ignore', 'ipc'],
  })
  const hold = keeper.stdin
  invariant(hold, 'the keeper has a standard input')
  // Writing is never done, and a keeper that was killed is seen by its exit.
  hold.on('error', () => {})
  return new Promise<
    { kind: 'ready'; keeper: ChildProcess; hold: Writable } | { kind: 'failed'; log: string }
  >((resolve) => {
    keeper.on('message', (news: KeeperNews) => {
      if (news.type === 'ready') resolve({ kind: 'ready', keeper, hold })
      else if (news.type === 'failed') resolve({ kind: 'failed', log: news.log })
      else options.onRestart?.()
    })
    keeper.on('error', (error) => resolve({ kind: 'failed', log: error.message }))
    keeper.on('exit', () => resolve({ kind: 'failed', log: 'its keeper ended' }))
  })
}

function ending(keeper: ChildProcess, hold: Writable) {
  const { promise: failed, reject } = Promise.withResolvers<never>()
  failed.catch(() => {})
  const exited = once(keeper, 'exit')
  keeper.on('exit', () =>
    reject(new HoldfastError('unavailable', 'postgres_gone', 'PostgreSQL is gone')),
  )
  return {
    failed,
    async [Symbol.asyncDispose]() {
      hold.end()
      if (keeper.exitCode === null && keeper.signalCode === null) await exited
    },
  }
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, '127.0.0.1')
  await once(probe, 'listening')
  const address = probe.address()
  invariant(address && typeof address === 'object', 'a TCP listener has a port')
  probe.close()
  await once(probe, 'close')
  return address.port
}

function keeperFile(): string {
  const name = import.meta.url.endsWith('.ts') ? './keeper.ts' : './keeper.js'
  return fileURLToPath(new URL(name, import.meta.url))
}

function logFile(cluster: Cluster): string {
  return join(cluster.folder, 'postgres.log')
}

function lastComplaint(log: string): string {
  const lines = log.trim().split('\n')
  return (
    lines.findLast((line) => /FATAL|ERROR|PANIC/.test(line)) ?? lines.at(-1) ?? 'no reason given'
  )
}
