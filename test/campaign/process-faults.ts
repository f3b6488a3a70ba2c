import { wait, within } from '@holdfast/std'
import type { Child } from '../support/processes.ts'
import type { Slot } from './fleet.ts'
import { aBff, anybody, aRunner, during, type Fault, type Stage, someMs } from './stage.ts'

const DRAIN_MS_MAX = 20_000

/** What happens to processes. */
export const PROCESS_FAULTS: Readonly<Record<string, Fault>> = {
  async 'runner killed'(stage, random) {
    return kill(stage, aRunner(stage, random))
  },
  async 'bff killed'(stage, random) {
    return kill(stage, aBff(stage, random))
  },
  /** It wakes up with everything that its upstreams said meanwhile in its sockets. */
  async 'runner frozen past its lease'(stage, random) {
    const ms = random.whole(Math.round(stage.leaseMs * 1.1), stage.leaseMs * 2)
    return freeze(aRunner(stage, random), ms)
  },
  async 'runner frozen briefly'(stage, random) {
    return freeze(aRunner(stage, random), random.whole(100, Math.round(stage.leaseMs * 0.7)))
  },
  async 'bff frozen'(stage, random) {
    return freeze(aBff(stage, random), someMs(stage, random))
  },
  async 'runner drained'(stage, random) {
    return drain(stage, aRunner(stage, random))
  },
  async 'bff drained'(stage, random) {
    return drain(stage, aBff(stage, random))
  },
  async 'clock off by ten minutes'(stage, random) {
    const slot = anybody(stage, random).service === 'bff' ? stage.fleet.bffs : stage.fleet.runners
    const skewed = slot.find(({ skewClock }) => skewClock !== null)
    if (!skewed?.skewClock) return null
    const { skewClock } = skewed
    // Leases that were just being given up seem to have ended long ago: then the keeper ends the process.
    skewed.doom('stalled')
    const seconds = random.pick([-600, 600])
    const ms = random.whole(2000, 6000)
    await during(
      ms,
      () => skewClock(seconds),
      () => skewClock(0),
    )
    return `${skewed.name}, ${seconds} s for ${ms} ms`
  },
  async 'event loop blocked'(stage, random) {
    const slot = aRunner(stage, random)
    const { child } = slot
    if (!child) return null
    const blockMs = random.chance(0.6) ? random.whole(200, 1500) : stage.leaseMs * 3
    if (blockMs > 1500) slot.doom('stalled')
    child.tell({ blockMs })
    await within(blockMs, child.exited)
    return `${slot.name}, ${blockMs} ms`
  },
}

async function kill(stage: Stage, slot: Slot): Promise<string | null> {
  const { child } = slot
  if (!child) return null
  slot.doom('killed')
  if (slot.service === 'runner') {
    stage.kills.push({ bootId: String(child.ready['bootId']), atMs: Date.now() })
  }
  child.kill('SIGKILL')
  await child.exited
  return slot.name
}

async function freeze(slot: Slot, ms: number): Promise<string | null> {
  const { child } = slot
  if (!child) return null
  // One that finds its leases lost when it wakes up, and cannot say so in time, ends itself.
  slot.doom('stalled')
  await during(
    ms,
    () => child.kill('SIGSTOP'),
    () => child.kill('SIGCONT'),
  )
  return `${slot.name}, ${ms} ms`
}

async function drain(stage: Stage, slot: Slot): Promise<string | null> {
  const { child } = slot
  if (!child) return null
  slot.doom('drained')
  child.kill('SIGTERM')
  if (!(await within(DRAIN_MS_MAX, child.exited))) await giveUp(stage, slot, child)
  return slot.name
}

async function giveUp(stage: Stage, slot: Slot, child: Child) {
  // Another fault may have stopped it: then it is no fault of its own.
  child.kill('SIGCONT')
  await wait(5000)
  const detail = `${slot.name} (pid ${child.pid}) did not end after SIGTERM`
  stage.findings.push({ invariant: 'a drained process ends', runId: null, detail })
  slot.doom('killed')
  child.kill('SIGKILL')
}
