import type { Figures } from './meter.ts'
import type { Server } from './server.ts'
import { median } from './statistics.ts'

/** One measurement of one system under one load; the names of the values are the table's columns. */
export type Row = {
  readonly system: string
  readonly load: string
  readonly values: Readonly<Record<string, number>>
}

export type Situation = {
  readonly server: Server
  readonly seconds: number
  /** Where processes leave their CPU profiles; undefined: they are not profiled. */
  readonly profileFolder: string | undefined
}

/** A measurement that can be repeated; `load` and `system` name it. */
export type Measurement = Pick<Row, 'system' | 'load'> & {
  measure(situation: Situation): Promise<Row['values']>
}

export type Cell = {
  readonly letter: string
  readonly title: string
  readonly measurements: readonly Measurement[]
}

/** The medians of several rounds of one measurement. */
export function medians(rounds: readonly Row['values'][]): Row['values'] {
  const names = new Set(rounds.flatMap((values) => Object.keys(values)))
  return Object.fromEntries(
    [...names].map((name) => [name, median(rounds.flatMap((values) => values[name] ?? []))]),
  )
}

/** What a stretch of time cost for each of the items that were done in it. */
export function costs(figures: Figures, itemsPerSecond: number): Row['values'] {
  const { cores, residentMb, seconds } = figures
  const runners = sumOf(cores, 'runner')
  return {
    'PostgreSQL cores': cores['postgres'] ?? 0,
    'BFF cores': cores['bff'] ?? 0,
    'runner cores': runners,
    'load cores': cores['bench'] ?? 0,
    'other cores': figures.otherCores,
    'CPU µs each':
      (((cores['postgres'] ?? 0) + (cores['bff'] ?? 0) + runners) / itemsPerSecond) * 1e6,
    'WAL bytes each': figures.walBytes / seconds / itemsPerSecond,
    'syncs/s': figures.walSyncs / seconds,
    'HOT %': figures.hotShare * 100,
    'dead tuples': figures.deadTuples,
    'BFF MB': residentMb['bff'] ?? Number.NaN,
    'runner MB': sumOf(residentMb, 'runner'),
  }
}

function sumOf(values: Readonly<Record<string, number>>, prefix: string): number {
  return Object.entries(values).reduce(
    (sum, [name, value]) => sum + (name.startsWith(prefix) ? value : 0),
    0,
  )
}
