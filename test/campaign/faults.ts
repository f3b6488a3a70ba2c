import { asError, wait } from '@holdfast/std'
import { type Random, randomFrom } from '../support/seeded.ts'
import { DATABASE_FAULTS } from './database-faults.ts'
import { PROCESS_FAULTS } from './process-faults.ts'
import type { Fault, Stage } from './stage.ts'

const FAULTS: Readonly<Record<string, Fault>> = { ...PROCESS_FAULTS, ...DATABASE_FAULTS }

/** What a campaign is about: these come more often than the others. */
const OFTEN = [
  'runner killed',
  'runner frozen past its lease',
  'runner cut off from its heartbeat',
  'runner cut off from its heartbeat',
]
const PAUSE_MS = { min: 200, max: 1500 }

type Planned = { kind: string; seed: number; pauseMs: number }

export type Done = { readonly kind: string; readonly what: string; readonly atMs: number }

/** An endless list of faults: every kind once in a random order, and again. The seed alone decides. */
export function* planOf(random: Random): Generator<Planned, never, undefined> {
  for (;;) {
    const bag = [...Object.keys(FAULTS), ...OFTEN]
    while (bag.length > 0) {
      const [kind] = bag.splice(random.whole(0, bag.length - 1), 1)
      const pauseMs = random.whole(PAUSE_MS.min, PAUSE_MS.max)
      if (kind) yield { kind, seed: random.whole(1, 2 ** 31), pauseMs }
    }
  }
}

/** One fault after the other until `ending` aborts; the last one is undone first. */
export async function inflict(
  stage: Stage,
  plan: Iterable<Planned>,
  done: Done[],
  ending: AbortSignal,
): Promise<void> {
  for (const { kind, seed, pauseMs } of plan) {
    await wait(pauseMs, ending).catch(() => undefined)
    if (ending.aborted) return
    const atMs = Date.now()
    try {
      const what = await FAULTS[kind]?.(stage, randomFrom(seed))
      if (what) done.push({ kind, what, atMs })
    } catch (error) {
      const detail = `${kind}: ${asError(error).message}`
      stage.findings.push({ invariant: 'a fault can be undone', runId: null, detail })
    }
  }
}
