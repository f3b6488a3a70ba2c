import { parentPort, workerData } from 'node:worker_threads'
import { asError, invariant, wait } from '@holdfast/std'
import { holdPresence, openStore, renewLeases, touchRunner } from '@holdfast/store'
import { elapsedMs, type Instant, now } from './instant.ts'
import { abortMarginMs, type FromKeeper, type KeeperData, type ToKeeper } from './lease-messages.ts'

// The keeper's thread: renews all leases on a connection of its own, whatever the main loop is doing; but when
// the main loop has not moved for too long it stops, and ends the process if the attempts are not confirmed dead.

type Held = {
  readonly runId: string
  readonly epoch: number
  /** When the renewal, or claim, that was granted last had been sent: the limit counts from here. */
  sentAt: Instant
  cancelTold: boolean
  /** When the main thread was told to stop the attempt, and how long it has to confirm that it did. */
  lostAt: Instant | null
  graceMs: number
}

const data = workerData as KeeperData
const port = parentPort
invariant(port, 'the keeper runs in a thread')

const store = openStore({
  databaseUrl: data.databaseUrl,
  applicationName: data.applicationName,
  poolMax: 1,
  // Two that nobody answers leave time for a third before the limit.
  statementMs: Math.max(400, Math.round(data.leaseMs / 6)),
  onPoolError: (error) => tell({ kind: 'trouble', message: error.message }),
})
// As long as this process lives its session does, and the others see that: they need not wait for the leases.
const alive = holdPresence({
  databaseUrl: data.databaseUrl,
  bootId: data.bootId,
  applicationName: 'holdfast runner presence',
  onError: (error) => tell({ kind: 'trouble', message: error.message }),
})
const heartbeat = new Int32Array(data.heartbeat)
const held = new Map<string, Held>()
const stopping = new AbortController()
const renewEveryMs = data.leaseMs / 3
/** The main loop may be stuck for so long without losing a lease. */
const stallMs = Math.max(2000, data.leaseMs / 2)
/** A process that slept past its lease has all of this to do before it can confirm anything. */
const wakeMs = Math.max(1000, abortMarginMs(data.leaseMs))
const tickMs = Math.max(20, Math.min(250, data.leaseMs / 20))
let presence = { running: 0, draining: false }
let presenceSentAt: Instant | null = null
let lastBeat = { count: Atomics.load(heartbeat, 0), at: now() }

port.on('message', (message: ToKeeper) => {
  switch (message.kind) {
    case 'hold':
      held.set(message.runId, {
        runId: message.runId,
        epoch: message.epoch,
        sentAt: message.sentAt,
        cancelTold: false,
        lostAt: null,
        graceMs: 0,
      })
      break
    case 'release':
    case 'aborted':
      if (held.get(message.runId)?.epoch === message.epoch) held.delete(message.runId)
      break
    case 'presence':
      presence = { running: message.running, draining: message.draining }
      presenceSentAt = null
      break
    case 'stop':
      stopping.abort()
      break
  }
})

// A clock of its own: a renewal that nobody answers must not keep the limits from being asked.
const limits = setInterval(enforceLimits, tickMs)
await keep()
clearInterval(limits)
await alive[Symbol.asyncDispose]()
await store[Symbol.asyncDispose]()
tell({ kind: 'stopped' })
port.close()

async function keep() {
  let retryAt: Instant | null = null
  while (!stopping.signal.aborted) {
    const due = [...held.values()].filter(
      (lease) => !lease.lostAt && elapsedMs(lease.sentAt) >= renewEveryMs,
    )
    const resting = retryAt !== null && elapsedMs(retryAt) < 0
    if (due.length > 0 && mainMoves() && !resting) {
      try {
        await renew()
        retryAt = null
      } catch (error) {
        tell({ kind: 'trouble', message: asError(error).message })
        retryAt = later(Math.min(500, data.leaseMs / 20))
      }
    }
    await touch()
    await wait(tickMs, stopping.signal).catch(() => undefined)
  }
}

// All leases go along with the first that is due: one statement, whatever their number.
async function renew() {
  const asked = [...held.values()].filter((lease) => !lease.lostAt)
  const sentAt = now()
  const answers = await renewLeases(store, asked, data.leaseMs)
  const renewed: Held[] = []
  for (const [at, answer] of answers.entries()) {
    const lease = asked[at]
    if (!lease || held.get(lease.runId) !== lease) continue
    if (answer.kind === 'renewed') {
      lease.sentAt = sentAt
      renewed.push(lease)
      if (answer.cancelRequested && !lease.cancelTold) {
        lease.cancelTold = true
        tell({ kind: 'cancel', runId: lease.runId, epoch: lease.epoch })
      }
    } else if (answer.kind === 'lost') {
      lose(lease, 'fenced')
    } else if (answer.kind === 'over') {
      held.delete(lease.runId)
    }
  }
  if (renewed.length > 0) {
    tell({
      kind: 'renewed',
      leases: renewed.map(({ runId, epoch }) => ({ runId, epoch })),
      sentAt,
    })
  }
}

/** I3: what could not be renewed is stopped before its lease can end, and the process with it if need be. */
function enforceLimits() {
  for (const lease of held.values()) {
    if (!lease.lostAt && leftMs(lease) <= abortMarginMs(data.leaseMs)) lose(lease, 'limit')
    // This thread may have been the slow one: what the other has said meanwhile is heard first.
    if (lease.lostAt && elapsedMs(lease.lostAt) >= lease.graceMs)
      setImmediate(endUnlessAborted, lease)
  }
}

/** The main thread is stuck with an attempt that has no right any more. Nothing gentler reaches it. */
function endUnlessAborted(lease: Held) {
  if (held.get(lease.runId) === lease) process.kill(process.pid, 'SIGKILL')
}

function leftMs(lease: Held): number {
  return data.leaseMs - elapsedMs(lease.sentAt)
}

function lose(lease: Held, why: 'fenced' | 'limit') {
  lease.lostAt = now()
  // To the lease's end, and not beyond it, unless that has passed already.
  lease.graceMs = leftMs(lease) > 0 ? leftMs(lease) : wakeMs
  tell({ kind: 'lost', runId: lease.runId, epoch: lease.epoch, why })
}

function mainMoves(): boolean {
  const count = Atomics.load(heartbeat, 0)
  if (count !== lastBeat.count) lastBeat = { count, at: now() }
  return elapsedMs(lastBeat.at) < stallMs
}

async function touch() {
  if (presenceSentAt && elapsedMs(presenceSentAt) < Math.min(5000, renewEveryMs)) return
  presenceSentAt = now()
  try {
    if (!(await touchRunner(store, data.bootId, presence))) tell({ kind: 'forgotten' })
  } catch (error) {
    tell({ kind: 'trouble', message: asError(error).message })
  }
}

function later(ms: number): Instant {
  const at = now()
  return { monotonicMs: at.monotonicMs + ms, wallMs: at.wallMs + ms }
}

function tell(message: FromKeeper) {
  port?.postMessage(message)
}
