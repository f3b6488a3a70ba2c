import type { ArtifactStore } from '@holdfast/artifacts'
import type { Store, Wakeups } from '@holdfast/store'
import type { Logger } from 'pino'
import type { BffConfig } from './config.ts'
import type { StreamRegistry } from './event-stream.ts'
import type { Metrics } from './metrics.ts'
import type { RunHub } from './run-hub.ts'

/** Where the process is in its life; only `serving` is ready. */
export type Phase = { current: 'waiting' | 'serving' | 'draining' }

/** What the routes are made of. */
export type Bff = {
  readonly store: Store
  readonly artifacts: ArtifactStore
  readonly wakeups: Wakeups
  readonly config: BffConfig
  readonly log: Logger
  readonly hub: RunHub
  readonly streams: StreamRegistry
  readonly metrics: Metrics
  readonly phase: Phase
}
