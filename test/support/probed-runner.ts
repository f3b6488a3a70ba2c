import { fileURLToPath } from 'node:url'
import type { Holdfast, Runner } from './holdfast.ts'

const ENTRY = fileURLToPath(
  new URL('../../services/runner/src/testing/probed/main.ts', import.meta.url),
)

/** An attempt, or a delivery, that stands still at a probe; everything else in its process goes on. */
export type Held = {
  readonly runId: string
  readonly epoch: number
  /** Of a delivery, which has no run and no epoch. */
  readonly eventId: string
  goOn(): void
}

/** A real runner whose attempts can be held at named moments (`runner/src/probes.ts`). */
export type ProbedRunner = Runner & {
  /** From now on the next attempt that comes there is held; resolves at once with a promise of that moment. */
  hold(probe: string): Promise<{ readonly held: Promise<Held> }>
}

export async function startProbedRunner(
  holdfast: Holdfast,
  env: Record<string, string> = {},
): Promise<ProbedRunner> {
  const runner = await holdfast.startRunner(env, ENTRY)
  return {
    ...runner,
    async hold(probe) {
      const held = runner
        .hears((message) => message['held'] === probe)
        .then(({ runId, epoch, eventId, at }) => ({
          runId: String(runId),
          epoch: Number(epoch),
          eventId: String(eventId),
          goOn: () => runner.tell({ goOn: at }),
        }))
      // A test that has failed meanwhile does not wait for it.
      held.catch(() => undefined)
      const holding = runner.hears((message) => message['holding'] === probe)
      runner.tell({ hold: probe })
      await holding
      return { held }
    },
  }
}
