import { wait } from '@holdfast/std'
import type { Random } from '../support/seeded.ts'
import type { DatabaseServer } from './database-server.ts'
import type { Fleet, Slot } from './fleet.ts'

/** What a fault may lay hands on. */
export type Stage = {
  readonly server: DatabaseServer
  readonly fleet: Fleet
  readonly leaseMs: number
  /** Kills of runners, for asking how long their runs waited. */
  readonly kills: { bootId: string; atMs: number }[]
  readonly findings: { invariant: string; runId: null; detail: string }[]
}

/** Bounded, and undone when it resolves. Says what it did; null: there was nothing to do it to. */
export type Fault = (stage: Stage, random: Random) => Promise<string | null>

/** Shorter or longer than a lease, about as often. */
export function someMs(stage: Stage, random: Random): number {
  const { leaseMs } = stage
  return random.chance(0.5)
    ? random.whole(200, Math.round(leaseMs * 0.6))
    : random.whole(Math.round(leaseMs * 1.2), Math.round(leaseMs * 2.2))
}

/** Changes something for a while, and changes it back whatever happens. */
export async function during(ms: number, begin: () => unknown, end: () => unknown): Promise<void> {
  try {
    await begin()
    await wait(ms)
  } finally {
    await end()
  }
}

export function aRunner({ fleet }: Stage, random: Random): Slot {
  return random.pick(fleet.runners)
}

export function aBff({ fleet }: Stage, random: Random): Slot {
  return random.pick(fleet.bffs)
}

export function anybody({ fleet }: Stage, random: Random): Slot {
  return random.pick([...fleet.bffs, ...fleet.runners, ...fleet.runners])
}

/** Repeats a statement until the server, which may just be dead, takes it. */
export async function insist(stage: Stage, text: string, values?: unknown[]): Promise<void> {
  for (let tries = 0; ; tries += 1) {
    try {
      await stage.server.admin(text, values)
      return
    } catch (error) {
      if (tries >= 100) throw error
      await wait(200)
    }
  }
}
