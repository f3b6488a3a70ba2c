// A runner that can be held at its probes. Over IPC: `{ hold: NAME }` holds the next one that comes
// there, answered with `{ holding: NAME }`; it says `{ held: NAME, at }` with what is held there, and `{ goOn: at }` lets it go.
import type { ProbeName, Probes } from '../../probes.ts'
import { runnerProcess } from '../../runner-process.ts'

/** An attempt or a delivery. */
type Held = { runId?: string; epoch?: number; eventId?: string }
type Order = { hold: ProbeName } | { goOn: number }

const NAMES: readonly ProbeName[] = [
  'afterClaim',
  'beforeAppend',
  'beforeFinish',
  'insideFinish',
  'afterFinishCommit',
  'beforeRelease',
  'beforeConfirmation',
]
const wanted = new Map<ProbeName, number>()
const held: (() => void)[] = []

process.on('message', (order: Order) => {
  if ('goOn' in order) return held[order.goOn]?.()
  wanted.set(order.hold, (wanted.get(order.hold) ?? 0) + 1)
  process.send?.({ holding: order.hold })
})
// Who waits for orders must not live for them alone.
process.channel?.unref()

const probes: Probes = Object.fromEntries(
  NAMES.map((name) => [name, (what: Held) => reached(name, what)]),
)
await runnerProcess(process.env, { probes })

async function reached(name: ProbeName, { runId, epoch, eventId }: Held) {
  const left = wanted.get(name) ?? 0
  if (left === 0) return
  wanted.set(name, left - 1)
  const { promise, resolve } = Promise.withResolvers<void>()
  process.send?.({ held: name, runId, epoch, eventId, at: held.push(resolve) - 1 })
  await promise
}
