import type { ArtifactStore } from '@holdfast/artifacts'
import type { Claimed, Store, Wakeups } from '@holdfast/store'
import type { Logger } from 'pino'
import type { Agent } from './agents/agent.ts'
import type { Appender } from './appender.ts'
import type { LeaseKeeper } from './lease-keeper.ts'
import type { RunnerMetrics } from './metrics.ts'
import type { Probes } from './probes.ts'
import type { StaleLedger } from './stale-ledger.ts'

/** What executing a run takes. */
export type ExecuteDeps = {
  readonly store: Store
  readonly artifactStore: ArtifactStore
  readonly wakeups: Pick<Wakeups, 'publish'>
  readonly keeper: LeaseKeeper
  readonly appender: Appender
  readonly agents: ReadonlyMap<string, Agent>
  readonly metrics: RunnerMetrics
  readonly stale: Pick<StaleLedger, 'refused'>
  readonly log: Logger
  readonly probes: Probes
  /** A run has ended: whoever is to be told of it need not wait for the relay's next look. */
  readonly onEnded: () => void
}

/** A log whose lines name the run and the attempt. */
export function childLog(deps: ExecuteDeps, { lease }: Claimed): Logger {
  return deps.log.child({ runId: lease.runId, epoch: lease.epoch })
}
