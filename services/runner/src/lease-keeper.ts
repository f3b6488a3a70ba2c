import { Worker } from 'node:worker_threads'
import { type Service, within } from '@holdfast/std'
import type { Lease } from '@holdfast/store'
import { AttemptAborted } from './abort.ts'
import { elapsedMs, type Instant } from './instant.ts'
import { abortMarginMs, type FromKeeper, type KeeperData, type ToKeeper } from './lease-messages.ts'

/** A lease that is being renewed. */
export type HeldLease = {
  /** Throws when the limit has passed by our own clocks: to be asked before the next outgoing byte. */
  assertHeld(): void
  /** Milliseconds until the attempt must have stopped everything. */
  leftMs(): number
  /** The attempt has stopped everything and writes nothing more. */
  release(): void
}

export type LeaseKeeper = Service & {
  /** Renews from now on; tells of a cancel and of the loss, each at most once. */
  hold(lease: Lease, sentAt: Instant, on: { cancel(): void; lost(): void }): HeldLease
  presence(now: { running: number; draining: boolean }): void
}

type Entry = { lease: Lease; epoch: number; sentAt: Instant; cancel(): void; lost(): void }

const BEAT_MS = 100
const STOP_MS = 3000

/** Starts the keeper's thread; if that dies by itself, the service has failed and the process ends. */
export function leaseKeeper(options: {
  databaseUrl: string
  applicationName: string
  bootId: string
  leaseMs: number
  /** The database refused a renewal. */
  onRefused: (lease: Lease) => void
  onTrouble: (message: string) => void
  onForgotten: () => void
}): LeaseKeeper {
  const { leaseMs } = options
  const beat = new Int32Array(new SharedArrayBuffer(4))
  const entries = new Map<string, Entry>()
  const { promise: failed, reject: fail } = Promise.withResolvers<never>()
  failed.catch(() => undefined)
  const stopped = Promise.withResolvers<void>()
  let worker: Worker | undefined
  let beating: NodeJS.Timeout | undefined

  function tell(message: ToKeeper) {
    worker?.postMessage(message)
  }

  function entryOf({ runId, epoch }: { runId: string; epoch: number }): Entry | undefined {
    const entry = entries.get(runId)
    return entry?.epoch === epoch ? entry : undefined
  }

  function lose(entry: Entry | undefined, why: 'fenced' | 'limit') {
    if (entry && why === 'fenced') options.onRefused(entry.lease)
    entry?.lost()
  }

  function hear(message: FromKeeper) {
    switch (message.kind) {
      case 'renewed':
        for (const { runId, epoch } of message.leases) {
          const entry = entryOf({ runId, epoch })
          if (entry) entry.sentAt = message.sentAt
        }
        break
      case 'cancel':
        entryOf(message)?.cancel()
        break
      case 'lost':
        lose(entryOf(message), message.why)
        // The abort was delivered: listeners have run, sockets are being destroyed.
        tell({ kind: 'aborted', runId: message.runId, epoch: message.epoch })
        break
      case 'forgotten':
        options.onForgotten()
        break
      case 'trouble':
        options.onTrouble(message.message)
        break
      case 'stopped':
        stopped.resolve()
        break
    }
  }

  return {
    name: 'lease keeper',
    failed,
    async start() {
      const { databaseUrl, applicationName, bootId } = options
      const heartbeat = beat.buffer
      worker = new Worker(threadFile(), {
        workerData: {
          databaseUrl,
          applicationName,
          bootId,
          leaseMs,
          heartbeat,
        } satisfies KeeperData,
        name: 'lease keeper',
      })
      worker.on('message', hear)
      worker.on('error', (error) => {
        // Nobody renews any more, and nobody asks the limits.
        for (const entry of entries.values()) entry.lost()
        fail(error)
      })
      worker.on('exit', () => stopped.resolve())
      beating = setInterval(() => Atomics.add(beat, 0, 1), BEAT_MS)
    },
    async stop() {
      if (!worker) return
      tell({ kind: 'stop' })
      await within(STOP_MS, stopped.promise)
      clearInterval(beating)
      await worker.terminate()
    },
    presence(at) {
      tell({ kind: 'presence', ...at })
    },
    hold(lease, sentAt, on) {
      const { runId, epoch } = lease
      const entry: Entry = { lease, epoch, sentAt, ...on }
      entries.set(runId, entry)
      tell({ kind: 'hold', runId, epoch, leaseMs, sentAt })
      const leftMs = () => leaseMs - abortMarginMs(leaseMs) - elapsedMs(entry.sentAt)
      return {
        leftMs,
        assertHeld() {
          if (leftMs() > 0) return
          on.lost()
          throw new AttemptAborted('lease_lost')
        },
        release() {
          if (entries.get(runId) === entry) entries.delete(runId)
          tell({ kind: 'release', runId, epoch })
        },
      }
    },
  }
}

// The same module is TypeScript in development and JavaScript in an image.
function threadFile(): URL {
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js'
  return new URL(`./lease-keeper-thread.${extension}`, import.meta.url)
}
