// Installs the dependencies with the pinned pnpm; runs on any Node from 20 on, with nothing installed.
//   set-up.mjs start|all STAMP
// "start" is what the services need to run, "all" adds what tests and checks need. What is there already
// stays: once everything was installed, a later start never removes the tests' part.
import { spawn } from 'node:child_process'
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { setTimeout as wait } from 'node:timers/promises'

const STAMP_FILE = 'node_modules/.holdfast-set-up'
const LOCK_FILE = 'node_modules/.holdfast-set-up.lock'
const NETWORK_TROUBLE =
  /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|ETIMEDOUT|EHOSTUNREACH/

const [wanted, stamp] = process.argv.slice(2)
let install

// The install has a group of its own, so that ending it ends everything it started.
for (const signal of ['SIGTERM', 'SIGINT']) {
  process.on(signal, () => {
    if (install?.pid) killGroup(install.pid)
    releaseLock()
    process.exit(143)
  })
}

mkdirSync('node_modules', { recursive: true })
await takeLock()
try {
  process.exitCode = await setUp()
} finally {
  releaseLock()
}

async function setUp() {
  const before = readStamp()
  if (before === `all ${stamp}` || (wanted === 'start' && before === `start ${stamp}`)) return 0
  const mode = wanted === 'all' || before.startsWith('all ') ? 'all' : 'start'
  const first = before === '' ? 'first start' : 'dependencies changed'
  process.stderr.write(`Setting up (${first}) ...\n`)
  rmSync(STAMP_FILE, { force: true })
  const { code, output } = await runInstall(mode)
  if (code === 0) {
    writeFileSync(STAMP_FILE, `${mode} ${stamp}\n`)
    return 0
  }
  if (NETWORK_TROUBLE.test(output)) {
    process.stderr.write(
      'holdfast: set-up failed, the package registry cannot be reached (no network?)\n',
    )
  } else {
    process.stderr.write(`${output.split('\n').slice(-30).join('\n')}\nholdfast: set-up failed\n`)
  }
  return 1
}

function runInstall(mode) {
  const { packageManager } = JSON.parse(readFileSync('package.json', 'utf8'))
  const what = mode === 'all' ? [] : ['--prod', '--filter', '.', '--filter', '{./services/*}...']
  const args = ['-y', packageManager, 'install', '--frozen-lockfile', ...what]
  const { NODE_ENV: _, ...env } = process.env
  install = spawn(
    'npx',
    [...args, '--config.confirmModulesPurge=false', '--reporter=append-only'],
    {
      detached: true,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        npm_config_fetch_retry_mintimeout: '1000',
        npm_config_fetch_retry_factor: '3',
        ...env,
      },
    },
  )
  writeFileSync(`${LOCK_FILE}.${process.pid}`, identity())
  renameSync(`${LOCK_FILE}.${process.pid}`, LOCK_FILE)
  let output = ''
  const keep = (chunk) => {
    output = (output + chunk).slice(-65_536)
  }
  install.stdout.on('data', keep)
  install.stderr.on('data', keep)
  return new Promise((resolve) => {
    install.on('error', (error) =>
      resolve({ code: 1, output: `npx cannot be run: ${error.message}` }),
    )
    install.on('close', (code) => resolve({ code, output }))
  })
}

function readStamp() {
  try {
    return readFileSync(STAMP_FILE, 'utf8').trim()
  } catch {
    return ''
  }
}

/** One set-up at a time; the lock of one that was killed is taken over, and what it left running ended. */
async function takeLock() {
  const mine = `${LOCK_FILE}.${process.pid}`
  for (;;) {
    writeFileSync(mine, identity())
    try {
      linkSync(mine, LOCK_FILE)
      return
    } catch (error) {
      if (error.code !== 'EEXIST') throw error
    } finally {
      rmSync(mine, { force: true })
    }
    if (!takeAwayStale(mine)) await wait(200)
  }
}

function takeAwayStale(aside) {
  const holder = readLock(LOCK_FILE)
  if (!holder) return true // released meanwhile
  if (alive(holder)) return false
  try {
    renameSync(LOCK_FILE, aside)
  } catch {
    return true // somebody else was quicker
  }
  const taken = readLock(aside)
  if (taken && taken.pid !== holder.pid && alive(taken)) {
    // Between the look and the rename the stale lock had become another's: it is given back.
    linkSync(aside, LOCK_FILE)
  } else if (holder.installPid) {
    killGroup(holder.installPid)
  }
  rmSync(aside, { force: true })
  return true
}

function readLock(file) {
  try {
    return JSON.parse(readFileSync(file, 'utf8'))
  } catch {
    return undefined // there is none
  }
}

function releaseLock() {
  if (readLock(LOCK_FILE)?.pid === process.pid) rmSync(LOCK_FILE, { force: true })
}

function identity() {
  return JSON.stringify({
    pid: process.pid,
    startedAt: startedAt(process.pid),
    installPid: install?.pid,
  })
}

function alive({ pid, startedAt: since }) {
  try {
    process.kill(pid, 0)
  } catch (error) {
    if (error.code === 'ESRCH') return false
  }
  return startedAt(pid) === since
}

/** Tells a process from a later one with the same number; where there is no /proc, the number must do. */
function startedAt(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return stat.slice(stat.lastIndexOf(')')).split(' ')[20]
  } catch {
    return ''
  }
}

function killGroup(pid) {
  try {
    process.kill(-pid, 'SIGKILL')
  } catch (error) {
    if (error.code !== 'ESRCH') throw error
  }
}
