/**
 * The process between Holdfast and PostgreSQL. It has a session of its own, so that neither Ctrl-C nor
 * `kill -9` on the starter's group reaches it, and it stops PostgreSQL when its standard input ends:
 * whoever holds the other end (the starter and its children) may need the database until they are gone.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { openSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import type { KeeperNews, Orders } from './orders.ts'

const orders: Orders = JSON.parse(process.argv[2] ?? '')
let stopping = false
let abandoned = false
let everReady = false
let server: ChildProcess

process.stdin.resume()
process.stdin.on('close', stop)
process.stdin.on('error', stop)
process.on('SIGTERM', stop)
process.on('SIGINT', stop)
// A starter that vanished will not want a restart: the next one may be ending this server just now.
process.on('disconnect', () => {
  abandoned = true
})
start()

function start() {
  const settings = Object.entries(orders.settings).flatMap(([name, value]) => [
    '-c',
    `${name}=${value}`,
  ])
  const args = ['-D', orders.dataFolder, '-p', String(orders.port), ...settings]
  const log = openSync(orders.logFile, everReady ? 'a' : 'w', 0o600)
  server = spawn(orders.postgres, args, {
    ...orders.account,
    cwd: '/',
    env: { LC_ALL: 'C', TZ: 'UTC' },
    stdio: ['ignore', log, log],
  })
  const watch = setInterval(() => {
    if (!announcedReady()) return
    clearInterval(watch)
    everReady = true
    tell({ type: 'ready' })
  }, 20)
  server.on('error', () => finish(1))
  server.on('exit', () => {
    clearInterval(watch)
    ended()
  })
}

function ended() {
  if (stopping || abandoned) return finish(0)
  if (!everReady) {
    tell({ type: 'failed', log: readFileSync(orders.logFile, 'utf8').slice(-2000) })
    return finish(1)
  }
  tell({ type: 'restarting' })
  setTimeout(() => (stopping ? finish(0) : start()), 500)
}

function stop() {
  if (stopping) return
  stopping = true
  // Fast shutdown; then without ceremony, which costs a recovery at the next start but no data.
  server.kill('SIGINT')
  setTimeout(() => server.kill('SIGQUIT'), 20_000)
  setTimeout(() => server.kill('SIGKILL'), 25_000)
}

function finish(code: number) {
  if (orders.removeFolder) rmSync(orders.removeFolder, { recursive: true, force: true })
  process.exit(code)
}

/** The server writes its state into the eighth line of its pid file, for programs like this one. */
function announcedReady(): boolean {
  try {
    const lines = readFileSync(join(orders.dataFolder, 'postmaster.pid'), 'utf8').split('\n')
    return lines[0] === String(server.pid) && lines[7]?.trim() === 'ready'
  } catch {
    // Not written yet.
    return false
  }
}

function tell(news: KeeperNews) {
  if (process.connected) process.send?.(news)
}
