import type { Instant } from './instant.ts'

/** What the main thread tells the keeper's. */
export type ToKeeper =
  | { kind: 'hold'; runId: string; epoch: number; leaseMs: number; sentAt: Instant }
  | { kind: 'release'; runId: string; epoch: number }
  /** The attempt has stopped everything: its lease may pass. */
  | { kind: 'aborted'; runId: string; epoch: number }
  | { kind: 'presence'; running: number; draining: boolean }
  | { kind: 'stop' }

/** What the keeper's thread tells the main one. */
export type FromKeeper =
  | { kind: 'renewed'; leases: { runId: string; epoch: number }[]; sentAt: Instant }
  | { kind: 'cancel'; runId: string; epoch: number }
  /** `fenced`: the database says so. `limit`: it could not be asked in time. */
  | { kind: 'lost'; runId: string; epoch: number; why: 'fenced' | 'limit' }
  | { kind: 'trouble'; message: string }
  /** Others took this runner for gone: it has to register again. */
  | { kind: 'forgotten' }
  | { kind: 'stopped' }

export type KeeperData = {
  readonly databaseUrl: string
  readonly applicationName: string
  readonly bootId: string
  readonly leaseMs: number
  /** Counts up while the main loop moves. */
  readonly heartbeat: SharedArrayBuffer
}

/** An attempt is aborted when this much of its lease is left and it could not be renewed. */
export function abortMarginMs(leaseMs: number): number {
  return Math.round(leaseMs / 6)
}
