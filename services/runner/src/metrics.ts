import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'
import { FENCED_OPERATIONS } from './stale-ledger.ts'

export type RunnerMetrics = ReturnType<typeof createMetrics>

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]

/** What a runner counts. A registry of its own, so that two runners in one process do not mix. */
export function createMetrics() {
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry })
  const metrics = {
    registry,
    running: new Gauge({
      name: 'holdfast_runner_running',
      help: 'Runs that this runner executes now.',
      registers,
    }),
    claims: new Counter({
      name: 'holdfast_claims_total',
      help: 'Runs that were claimed from the queue.',
      registers,
    }),
    takeovers: new Counter({
      name: 'holdfast_takeovers_total',
      help: 'Runs taken over from an owner that was lost.',
      labelNames: ['reason'] as const,
      registers,
    }),
    ownersGone: new Counter({
      name: 'holdfast_owners_gone_total',
      help: 'Runners whose session was found gone before their leases had passed.',
      registers,
    }),
    leasesExpired: new Counter({
      name: 'holdfast_leases_expired_total',
      help: 'Leases of others that were found expired.',
      registers,
    }),
    leasesLost: new Counter({
      name: 'holdfast_leases_lost_total',
      help: 'Attempts of this runner that lost their right.',
      registers,
    }),
    handbacks: new Counter({
      name: 'holdfast_handbacks_total',
      help: 'Runs given back to the queue by a drain.',
      registers,
    }),
    staleWrites: new Counter({
      name: 'holdfast_stale_writes_rejected_total',
      help: 'Writes of this runner that the fence refused.',
      labelNames: ['operation'] as const,
      registers,
    }),
    terminalWriteFailures: new Counter({
      name: 'holdfast_terminal_write_failures_total',
      help: 'Terminal writes that failed; the run stays recoverable.',
      registers,
    }),
    runsEnded: new Counter({
      name: 'holdfast_runs_ended_total',
      help: 'Runs that this runner ended.',
      labelNames: ['state', 'outcome'] as const,
      registers,
    }),
    artifactsCollected: new Counter({
      name: 'holdfast_artifacts_collected_total',
      help: 'Files that belonged to nobody and were removed.',
      registers,
    }),
    eventsCommitted: new Counter({
      name: 'holdfast_events_committed_total',
      help: 'Events made durable.',
      registers,
    }),
    commitSeconds: new Histogram({
      name: 'holdfast_event_commit_seconds',
      help: 'From sending a flush to its commit.',
      buckets: SECONDS,
      registers,
    }),
    cancelToCloseSeconds: new Histogram({
      name: 'holdfast_cancel_to_close_seconds',
      help: 'From seeing a cancel to the agent having stopped.',
      buckets: SECONDS,
      registers,
    }),
    terminalToDeliverySeconds: new Histogram({
      name: 'holdfast_terminal_to_delivery_seconds',
      help: "From a run's end to an endpoint's confirmation of its notification.",
      buckets: [...SECONDS, 60, 300, 1800, 7200, 36_000],
      registers,
    }),
    deliveryAttempts: new Counter({
      name: 'holdfast_delivery_attempts_total',
      help: 'Attempts of this runner to tell an endpoint of a run, by what came of them.',
      labelNames: ['outcome'] as const,
      registers,
    }),
    loopLag: new Gauge({
      name: 'holdfast_event_loop_lag_seconds',
      help: 'The longest stall of the event loop since the last scrape.',
      registers,
    }),
  }
  // So that a first one is seen as a step from zero.
  metrics.takeovers.inc({ reason: 'lease' }, 0)
  for (const operation of FENCED_OPERATIONS) {
    metrics.staleWrites.inc({ operation }, 0)
  }
  for (const outcome of ['delivered', 'failed', 'dead'])
    metrics.deliveryAttempts.inc({ outcome }, 0)
  return metrics
}
