import { type Loop, loop } from '@holdfast/std'
import {
  endLeasesOf,
  lookForOwners,
  type OwnersSeen,
  removeRunner,
  type Store,
} from '@holdfast/store'

/** Between two looks; absence needs two, and this long, so that a session that was cut has time to come back. */
const LOOK_EVERY_MS = 300
const ABSENT_MS = 700

/**
 * Finds owners that died without a lease having passed: the sweep then treats their runs as expired. Absence counts
 * only of an owner that this process has seen present in the same server start, then absent in two looks; for a
 * third of a lease after a server start only leases count. So a restart of the database takes over nobody who lives.
 */
export function presenceWatch(options: {
  store: Store
  bootId: string
  leaseMs: number
  /** An owner's leases were ended: there is something to take over. */
  onGone: (bootId: string, leases: number) => void
  onError: (error: Error) => void
}): Loop {
  const { store } = options
  const absence = absenceJudge(options)
  return loop({
    name: 'presence watch',
    everyMs: LOOK_EVERY_MS,
    onError: options.onError,
    async round() {
      for (const owner of absence.look(await lookForOwners(store), performance.now())) {
        const leases = await endLeasesOf(store, owner)
        // Rows that were locked are left for the next look; nobody is forgotten before all are ended.
        if (leases > 0) options.onGone(owner, leases)
        else {
          // One that lives all the same registers again.
          await removeRunner(store, { bootId: owner })
          absence.forget(owner)
        }
      }
    },
  })
}

/** The judgement alone: given each look and its moment (monotonic ms), who is gone, until that one is forgotten. */
export function absenceJudge(options: { bootId: string; leaseMs: number }) {
  const seen = new Set<string>()
  const absentSince = new Map<string, number>()
  let serverStartedAt = ''

  function look(now: OwnersSeen, atMs: number): string[] {
    if (now.serverStartedAt !== serverStartedAt) {
      serverStartedAt = now.serverStartedAt
      seen.clear()
      absentSince.clear()
    }
    for (const owner of now.present) {
      seen.add(owner)
      absentSince.delete(owner)
    }
    const gone: string[] = []
    for (const owner of now.absent) {
      if (!seen.has(owner) || owner === options.bootId) continue
      const since = absentSince.get(owner)
      if (since === undefined) absentSince.set(owner, atMs)
      else if (atMs - since >= ABSENT_MS && now.upMs >= options.leaseMs / 3) {
        gone.push(owner)
      }
    }
    return gone
  }

  return {
    look,
    forget(owner: string) {
      seen.delete(owner)
      absentSince.delete(owner)
    },
  }
}
