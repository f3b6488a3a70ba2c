import { asError, backoffMs, wait } from '@holdfast/std'
import {
  appendEvents,
  isDataError,
  type Ownership,
  readOwnership,
  type Store,
} from '@holdfast/store'
import { advance, closeQueue, type Part, type Queue } from './append-queue.ts'
import type { Probes } from './probes.ts'
import type { StaleLedger } from './stale-ledger.ts'

export type FlushDeps = {
  readonly store: Store
  /** Parts that have just become durable, and how long that took; to be called before anything else is done. */
  readonly durable: (parts: readonly Part[], ms: number) => void
  readonly stale: Pick<StaleLedger, 'refused'>
  readonly onError: (error: Error) => void
  readonly stopping: AbortSignal
  readonly probes: Probes
}

/** Sends a batch; resolves when each run of it is settled: durable, lost, poisoned or closed. */
export async function flush(deps: FlushDeps, batch: readonly Part[]): Promise<void> {
  let left = open(batch)
  for (let attempt = 0; left.length > 0; attempt += 1) {
    for (const { queue } of left) await deps.probes.beforeAppend?.(queue.lease)
    const sentAt = performance.now()
    try {
      const done = await appendEvents(
        deps.store,
        left.map((part) => part.append),
      )
      const written = new Map(done.map((appended) => [keyOf(appended), appended]))
      const landed = left.filter(({ queue }) => written.has(keyOf(queue.lease)))
      settle(deps, landed, performance.now() - sentAt)
      for (const { queue } of landed) {
        if (written.get(keyOf(queue.lease))?.cancelRequested) queue.listener.cancelRequested()
      }
      const refused = left.filter(({ queue }) => !written.has(keyOf(queue.lease)))
      left = refused.length > 0 ? await decide(deps, refused, attempt > 0) : []
    } catch (error) {
      if (isDataError(error)) return await bisect(deps, left, asError(error))
      deps.onError(asError(error))
      left = await decideOnceBack(deps, left, attempt)
    }
    left = open(left)
  }
}

/**
 * What is not known to have been written is asked for: it landed after all (its reply was lost), or it is still
 * ours and is to be sent again, or the right is lost. Returns what is to be sent again.
 */
async function decide(
  deps: FlushDeps,
  parts: readonly Part[],
  mayHaveLanded: boolean,
): Promise<Part[]> {
  const found = await readOwnership(
    deps.store,
    parts.map(({ queue }) => queue.lease),
  )
  const owned = new Map(found.map((ownership) => [keyOf(ownership), ownership]))
  return parts.filter((part) => {
    const now = owned.get(keyOf(part.queue.lease))
    if (mayHaveLanded && now && landed(part, now)) {
      settle(deps, [part], 0)
      if (!now.held) lose(part.queue)
      return false
    }
    if (now?.held && now.lastSequence === part.append.base) return true
    // Also of an attempt that knows already. Where a reply was lost, it may never have got there.
    if (!mayHaveLanded || !part.queue.closed) deps.stale.refused(part.queue.lease, 'append')
    lose(part.queue)
    return false
  })
}

/** Only this attempt could write behind `base` while it held the run, so the length that it left the log at tells. */
function landed({ append }: Part, now: Ownership): boolean {
  return now.ownSequence === append.base + append.events.length
}

/** Asks until the database answers; a run whose lease ends meanwhile is closed by its keeper. */
async function decideOnceBack(
  deps: FlushDeps,
  parts: readonly Part[],
  attempt: number,
): Promise<Part[]> {
  for (let tries = attempt; ; tries += 1) {
    const left = open(parts)
    if (left.length === 0) return []
    await wait(backoffMs(tries, { baseMs: 50, capMs: 1000 }), deps.stopping)
    try {
      return await decide(deps, left, true)
    } catch (error) {
      deps.onError(asError(error))
    }
  }
}

/** Finds the one run whose data the database refuses, so that it alone fails. */
async function bisect(deps: FlushDeps, batch: readonly Part[], error: Error): Promise<void> {
  const [only] = batch
  if (only && batch.length === 1) {
    closeQueue(only.queue, error)
    only.queue.listener.poisoned(error)
    return
  }
  const middle = batch.length >> 1
  await flush(deps, batch.slice(0, middle))
  await flush(deps, batch.slice(middle))
}

function settle(deps: FlushDeps, parts: readonly Part[], ms: number) {
  if (parts.length === 0) return
  deps.durable(parts, ms)
  for (const part of parts) advance(part)
}

function lose(queue: Queue) {
  if (queue.closed) return
  closeQueue(queue, new Error(`run ${queue.lease.runId} is not ours any more`))
  queue.listener.lost()
}

/** An attempt: a process that takes over from itself has two of one run for a moment. */
function keyOf({ runId, epoch }: { runId: string; epoch: number }): string {
  return `${runId}.${epoch}`
}

function open(parts: readonly Part[]): Part[] {
  return parts.filter(({ queue }) => !queue.closed)
}
