import { monitorEventLoopDelay } from 'node:perf_hooks'
import { notificationFigures, queueFigures, type Store } from '@holdfast/store'
import type { Logger } from 'pino'
import { collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'

export type Metrics = Disposable & {
  readonly contentType: string
  /** The Prometheus text. A database that is away leaves its figures out, nothing else. */
  render(): Promise<string>
  /** An event was handed to a socket so long after this process heard of it. */
  delivered(ms: number): void
}

/** Scrapes of several collectors within this time share one query. */
const FIGURES_FRESH_MS = 2000
const LOOP_SAMPLE_MS = 20

export function bffMetrics(store: Store, log: Logger, openStreams: () => number): Metrics {
  const registry = new Registry()
  collectDefaultMetrics({ register: registry })
  const loopDelay = monitorEventLoopDelay({ resolution: LOOP_SAMPLE_MS })
  loopDelay.enable()
  const registers = [registry]

  new Gauge({
    name: 'holdfast_open_streams',
    help: 'Event streams open on this process',
    registers,
    collect() {
      this.set(openStreams())
    },
  })
  new Gauge({
    name: 'holdfast_event_loop_lag_seconds',
    help: 'p99 delay of the event loop since the last scrape',
    registers,
    collect() {
      // What is recorded is the time between two samples, so the sampling time is not lag.
      const lagMs = loopDelay.percentile(99) / 1e6 - LOOP_SAMPLE_MS
      this.set(Math.max(0, lagMs) / 1000)
      loopDelay.reset()
    },
  })
  const delivery = new Histogram({
    name: 'holdfast_event_delivery_seconds',
    help: 'From the wake-up after an event was committed to its socket write',
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
    registers,
  })
  const refreshQueue = queueGauges(store, registers)
  let refreshedAtMs = -Infinity

  return {
    contentType: registry.contentType,
    async render() {
      const now = performance.now()
      if (now - refreshedAtMs > FIGURES_FRESH_MS) {
        refreshedAtMs = now
        await refreshQueue().catch((err: unknown) => log.warn({ err }, 'no queue figures'))
      }
      return registry.metrics()
    },
    delivered: (ms) => delivery.observe(ms / 1000),
    [Symbol.dispose]() {
      loopDelay.disable()
      registry.clear()
    },
  }
}

function queueGauges(store: Store, registers: Registry[]): () => Promise<void> {
  const runs = new Gauge({
    name: 'holdfast_runs',
    help: 'Runs by state',
    labelNames: ['state'],
    registers,
  })
  const oldest = new Gauge({
    name: 'holdfast_queue_oldest_seconds',
    help: 'Age of the oldest run that could be claimed',
    registers,
  })
  const xmin = new Gauge({
    name: 'holdfast_oldest_xmin_age_seconds',
    help: 'Age of the oldest transaction that holds back vacuum',
    registers,
  })
  const lag = new Gauge({
    name: 'holdfast_outbox_lag_seconds',
    help: 'How long the oldest notification that is due has been waiting',
    registers,
  })
  const deliveries = new Gauge({
    name: 'holdfast_deliveries',
    help: 'Deliveries of notifications that have not arrived, by state',
    labelNames: ['state'],
    registers,
  })
  return async () => {
    lag.remove({})
    deliveries.reset()
    runs.reset()
    oldest.remove({})
    xmin.remove({})
    const figures = await queueFigures(store)
    for (const { state, count } of figures.runs) runs.set({ state }, count)
    oldest.set(figures.queueOldestSeconds)
    xmin.set(figures.oldestXminAgeSeconds)
    const notifications = await notificationFigures(store)
    lag.set(notifications.lagSeconds)
    deliveries.set({ state: 'pending' }, notifications.pending)
    deliveries.set({ state: 'dead' }, notifications.dead)
  }
}
