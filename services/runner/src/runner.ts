import type { ArtifactStore } from '@holdfast/artifacts'
import { type Service, startAll } from '@holdfast/std'
import {
  type AgentRecord,
  type Claimed,
  type EndingCause,
  registerRunner,
  removeRunner,
  type Store,
  syncClock,
  type Wakeups,
} from '@holdfast/store'
import type { Logger } from 'pino'
import { type ActiveRuns, activeRuns } from './active-runs.ts'
import type { Agent } from './agents/agent.ts'
import { openAppender } from './appender.ts'
import { artifactCollector } from './artifact-collector.ts'
import { cancelWatch } from './cancel-watch.ts'
import { claimLoop } from './claim-loop.ts'
import type { RunnerConfig } from './config.ts'
import type { ExecuteDeps } from './execute-deps.ts'
import { endRun, executeRun } from './execute-run.ts'
import { foldSaver, housekeeping } from './housekeeping.ts'
import type { Instant } from './instant.ts'
import { leaseKeeper } from './lease-keeper.ts'
import type { RunnerMetrics } from './metrics.ts'
import { relay } from './notifications/relay.ts'
import type { Probes } from './probes.ts'
import { recovery } from './recovery.ts'
import { openStaleLedger } from './stale-ledger.ts'

/** How long runs that were told to stop may take to write their end, beyond the drain. */
const RECORD_MS = 10_000

/**
 * A runner's life: registers, claims and executes until `requested`, then drains: it claims nothing more, lets
 * runs end within DRAIN_SECONDS, hands the others back, and is gone.
 */
export async function runRunner(options: {
  config: RunnerConfig
  store: Store
  artifactStore: ArtifactStore
  wakeups: Wakeups
  agents: ReadonlyMap<string, Agent>
  agentRecords: readonly AgentRecord[]
  metrics: RunnerMetrics
  log: Logger
  bootId: string
  name: string
  metricsUrl: string | null
  requested: Promise<string>
  probes: Probes
  onRegistered: () => void
}): Promise<void> {
  const { config, store, wakeups, metrics, log, bootId } = options
  const agentNames = [...options.agents.keys()]
  const onError = (what: string) => (error: Error) => log.warn({ err: error }, `${what} failed`)
  let draining = false

  async function register() {
    const { name, metricsUrl, agentRecords } = options
    const capacity = config.concurrency
    const record = { bootId, name, pid: process.pid, agents: agentNames, capacity, metricsUrl }
    await registerRunner(store, record, agentRecords, config.notifications.webhookUrls)
  }

  await using stack = new AsyncDisposableStack()
  const stale = stack.use(openStaleLedger({ store, metrics, onError: onError('the ledger') }))
  const keeper = leaseKeeper({
    databaseUrl: config.directUrl,
    applicationName: 'holdfast runner leases',
    bootId,
    leaseMs: config.leaseMs,
    onRefused: (lease) => stale.refused(lease, 'renew'),
    onTrouble: (message) => log.warn({ message }, 'leases could not be renewed'),
    onForgotten() {
      if (!draining) register().catch(onError('registering again'))
    },
  })
  const appender = stack.use(
    openAppender({
      store,
      wakeups,
      probes: options.probes,
      onCommit(events, ms) {
        metrics.eventsCommitted.inc(events)
        metrics.commitSeconds.observe(ms / 1000)
      },
      stale,
      onError: onError('an append'),
    }),
  )
  const active = activeRuns({
    changed(size) {
      metrics.running.set(size)
      keeper.presence({ running: size, draining })
      if (!draining) claims.wake()
    },
    failed: (error, runId) => log.error({ err: error, runId }, 'an execution failed'),
  })
  const relaying = relay(options)
  const deps: ExecuteDeps = { ...options, keeper, appender, stale, onEnded: relaying.wake }
  const common = {
    store,
    owner: bootId,
    agents: agentNames,
    leaseMs: config.leaseMs,
    freeSlots: () => (draining ? 0 : config.concurrency - active.size),
    start: (claimed: Claimed, claimedAt: Instant) => {
      metrics.claims.inc()
      // Our own lost attempt, if the loss has not reached it yet.
      active.get(claimed.lease.runId)?.abort('lease_lost')
      active.add(claimed.lease.runId, (register) => executeRun(deps, claimed, claimedAt, register))
    },
  }
  const claims = claimLoop({ ...common, onError: onError('a claim') })
  const recovering = recovery({
    ...common,
    wakeups,
    metrics,
    log,
    end: (claimed: Claimed & { cause: EndingCause }, claimedAt: Instant) => {
      active.get(claimed.lease.runId)?.abort('lease_lost')
      active.add(claimed.lease.runId, () => endRun(deps, claimed, claimedAt))
    },
    onError,
  })
  const cancels = cancelWatch({ store, active, onError: onError('looking for cancels') })

  await syncClock(store)
  await register()
  const services: Service[] = [
    keeper,
    housekeeping({
      ...options,
      silentMs: 60_000 + 2 * config.leaseMs,
      retentionDays: config.retentionDays,
      onError: onError('housekeeping'),
    }),
    artifactCollector({ ...options, onError: onError('collecting artifacts') }),
    cancels,
    foldSaver({ active, onError: onError('saving a fold') }),
    ...recovering,
    claims,
    relaying,
  ]
  const { failed } = await startAll(stack, services)
  stack.defer(wakeups.subscribe('queue', () => claims.wake()))
  stack.defer(wakeups.subscribe('cancel', (runIds) => cancels.hint(runIds)))
  log.info({ bootId, agents: agentNames, leaseMs: config.leaseMs }, 'runner is ready')
  options.onRegistered()

  const reason = await Promise.race([options.requested, failed])
  draining = true
  log.info({ reason, running: active.size }, 'draining')
  // At once: one that still waits for its reply must not leave the others claiming.
  await Promise.all([claims, ...recovering].map((loop) => loop.stop()))
  await Promise.all([drain(active, keeper, config.drainMs, log), relaying.drain(config.drainMs)])
  await removeRunner(store, { bootId }).catch(onError('removing the runner'))
  log.info('runner is gone')
}

async function drain(
  active: ActiveRuns,
  keeper: { presence(at: { running: number; draining: boolean }): void },
  drainMs: number,
  log: Logger,
) {
  keeper.presence({ running: active.size, draining: true })
  if (await active.empty(drainMs)) return
  log.info({ running: active.size }, 'handing runs back')
  active.abortAll('drain')
  if (!(await active.empty(RECORD_MS))) {
    log.error(
      { running: active.size },
      'some runs could not be handed back; their leases will pass',
    )
  }
}
