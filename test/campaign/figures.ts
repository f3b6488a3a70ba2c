import type { Done } from './faults.ts'
import type { Counted, Finding, Histories, Stored } from './history.ts'

/** A campaign in numbers, as it is printed and kept. */
export type Figures = {
  readonly seed: number
  readonly minutes: number
  readonly commit: string
  readonly startedAt: string
  readonly faults: { total: number; kinds: number; byKind: Record<string, number> }
  readonly runs: { total: number; byOutcome: Record<string, number> }
  readonly turns: { sent: number; answered: number; refused: number; unansweredRequests: number }
  readonly readers: { total: number; connections: number; frames: number }
  readonly cancels: number
  readonly deliveries: number
  readonly events: number
  readonly attempts: Record<string, number>
  readonly takeovers: number
  readonly handBacks: number
  readonly staleWritesRefused: { total: number; byOperation: Record<string, number> }
  readonly processes: { starts: number }
  /** From a runner's SIGKILL to the first event of its runs' next attempts. */
  readonly killToNextEventMs: { count: number; p50: number | null; p99: number | null }
  readonly missing: string[]
  readonly violations: readonly Finding[]
}

export type Gathered = {
  readonly seed: number
  readonly minutes: number
  readonly commit: string
  readonly startedAt: string
  readonly done: readonly Done[]
  readonly histories: Histories
  readonly stored: Stored
  readonly counted: readonly Counted[]
  readonly starts: number
  readonly kills: readonly { bootId: string; atMs: number }[]
  readonly findings: readonly Finding[]
}

/** What three minutes have to bring; other lengths in proportion. A campaign without enough of it proves little. */
const MINIMUM_MINUTES = 3
const MINIMUMS = { faults: 40, takeovers: 10, 'refused stale writes': 10, runs: 300 }
const KINDS_MIN = 8

export function figuresOf(gathered: Gathered): Figures {
  const { histories, stored, done, seed, minutes, commit, startedAt } = gathered
  const attempts = [...stored.attempts.values()].flat()
  const byReason = count(attempts, ({ reason }) => reason)
  const byKind = count(done, ({ kind }) => kind)
  const figures = {
    faults: done.length,
    takeovers: byReason['takeover'] ?? 0,
    'refused stale writes': stored.staleWrites.length,
    runs: stored.runs.size,
  }
  return {
    seed,
    minutes,
    commit,
    startedAt,
    faults: { total: done.length, kinds: Object.keys(byKind).length, byKind },
    runs: {
      total: stored.runs.size,
      byOutcome: count(stored.runs.values(), ({ state, errorCode }) => errorCode ?? state),
    },
    turns: {
      sent: histories.turns.length,
      answered: histories.turns.reduce((sum, { answers }) => sum + answers.length, 0),
      refused: histories.turns.filter(({ answers }) => answers[0]?.status === 409).length,
      unansweredRequests: histories.turns.reduce((sum, { unanswered }) => sum + unanswered, 0),
    },
    readers: {
      total: histories.readings.length,
      connections: histories.readings.reduce((sum, { connections }) => sum + connections, 0),
      frames: histories.readings.reduce((sum, { frames }) => sum + frames.length, 0),
    },
    cancels: histories.cancels.length,
    deliveries: histories.deliveries.length,
    events: [...stored.logs.values()].reduce((sum, log) => sum + log.length, 0),
    attempts: byReason,
    takeovers: figures.takeovers,
    handBacks: byReason['handback'] ?? 0,
    staleWritesRefused: {
      total: stored.staleWrites.length,
      byOperation: count(stored.staleWrites, ({ operation }) => operation),
    },
    processes: { starts: gathered.starts },
    killToNextEventMs: percentiles(waitsAfterKills(gathered)),
    missing: missing(figures, Object.keys(byKind).length, minutes),
    violations: gathered.findings,
  }
}

function missing(
  figures: Record<keyof typeof MINIMUMS, number>,
  kinds: number,
  minutes: number,
): string[] {
  const share = minutes / MINIMUM_MINUTES
  const tooFew = Object.entries(MINIMUMS).flatMap(([name, minimum]) => {
    const due = Math.floor(minimum * share)
    const got = figures[name as keyof typeof MINIMUMS]
    return got < due ? [`${got} ${name} of at least ${due}`] : []
  })
  const kindsDue = Math.min(KINDS_MIN, Math.floor(KINDS_MIN * share))
  return kinds < kindsDue ? [...tooFew, `${kinds} kinds of at least ${kindsDue}`] : tooFew
}

function waitsAfterKills({ kills, stored }: Gathered): number[] {
  const attempts = [...stored.attempts.values()].flat()
  return kills.flatMap(({ bootId, atMs }) =>
    attempts.flatMap(({ runId, epoch, runner, outcome, endedAtMs }) => {
      const wasKilled = runner === bootId && outcome === 'lost' && Number(endedAtMs) >= atMs
      const next = stored.logs.get(runId)?.find((event) => event.epoch === epoch + 1)
      return wasKilled && next ? [Math.round(next.atMs - atMs)] : []
    }),
  )
}

function percentiles(values: readonly number[]) {
  const sorted = values.toSorted((one, other) => one - other)
  const at = (share: number) => sorted[Math.ceil(share * sorted.length) - 1] ?? null
  return { count: sorted.length, p50: at(0.5), p99: at(0.99) }
}

function count<T>(items: Iterable<T>, key: (item: T) => string): Record<string, number> {
  const groups = [...Map.groupBy(items, key)].map(([name, all]) => [name, all.length] as const)
  return Object.fromEntries(groups.toSorted(([one], [other]) => (one < other ? -1 : 1)))
}
