import { sql } from 'kysely'
import { rows, type Store } from './store.ts'

export type RunnerRecord = {
  readonly bootId: string
  readonly name: string
  readonly pid: number
  readonly agents: readonly string[]
  readonly capacity: number
  readonly running: number
  readonly lastSeen: string
  readonly draining: boolean
  readonly metricsUrl: string | null
}

export type AgentRecord = {
  readonly name: string
  readonly type: string
  readonly isDefault: boolean
  /** Copied into each run when it is accepted. */
  readonly limits: {
    readonly maxAttempts: number
    readonly onLost: 'restart' | 'fail'
    readonly effects: 'none' | 'idempotent' | 'unknown'
    readonly deadlineMs: number
    readonly maxQueueMs: number
    readonly history: 'all' | 'complete'
  }
}

/** Makes a runner and its agents known. The agents outlive it: a turn may be accepted while no runner is there. */
export async function registerRunner(
  store: Store,
  runner: Omit<RunnerRecord, 'running' | 'lastSeen' | 'draining'>,
  agents: readonly AgentRecord[],
  webhookUrls: readonly string[] = [],
): Promise<void> {
  await rows(
    store,
    sql`INSERT INTO holdfast.agents (name, type, is_default, limits)
        SELECT a.name, a.type, a.is_default, a.limits::json
        FROM unnest(${agents.map((agent) => agent.name)}::text[], ${agents.map((agent) => agent.type)}::text[],
                    ${agents.map((agent) => agent.isDefault)}::boolean[],
                    ${agents.map((agent) => JSON.stringify(agent.limits))}::text[]) AS a (name, type, is_default, limits)
        ORDER BY a.name
        ON CONFLICT (name) DO UPDATE SET type = excluded.type, is_default = excluded.is_default,
          limits = excluded.limits, recorded_at = clock_timestamp()`,
  )
  const preferred = agents.find((agent) => agent.isDefault)
  if (preferred) {
    await rows(
      store,
      sql`UPDATE holdfast.agents SET is_default = false WHERE is_default AND name <> ${preferred.name}`,
    )
  }
  await rows(
    store,
    sql`INSERT INTO holdfast.runners (boot_id, name, pid, agents, capacity, metrics_url, webhook_urls)
        VALUES (${runner.bootId}, ${runner.name}, ${runner.pid}, ${runner.agents}::text[], ${runner.capacity},
                ${runner.metricsUrl}, ${webhookUrls}::text[])
        ON CONFLICT (boot_id) DO UPDATE SET last_seen = clock_timestamp()`,
  )
}

/** Says that a runner is there; false: others took it for gone, and it has to register again. */
export async function touchRunner(
  store: Store,
  bootId: string,
  now: { readonly running: number; readonly draining: boolean },
): Promise<boolean> {
  const touched = await rows(
    store,
    sql`UPDATE holdfast.runners
        SET last_seen = clock_timestamp(), running = ${now.running}, draining = ${now.draining}
        WHERE boot_id = ${bootId} RETURNING boot_id`,
  )
  return touched.length > 0
}

/** A runner that has ended, or one that was not seen for `silentMs`, is no runner any more. */
export async function removeRunner(
  store: Store,
  which: { readonly bootId: string } | { readonly silentMs: number },
): Promise<void> {
  await rows(
    store,
    'bootId' in which
      ? sql`DELETE FROM holdfast.runners WHERE boot_id = ${which.bootId}`
      : sql`DELETE FROM holdfast.runners
            WHERE last_seen < clock_timestamp() - ${which.silentMs} * interval '1 ms'`,
  )
}

/** All runners that are there, oldest first. */
export async function listRunners(store: Store): Promise<RunnerRecord[]> {
  const found = await rows(
    store,
    sql<{
      boot_id: string
      name: string
      pid: number
      agents: string[]
      capacity: number
      running: number
      last_seen: Date
      draining: boolean
      metrics_url: string | null
    }>`SELECT boot_id, name, pid, agents, capacity, running, last_seen, draining, metrics_url
       FROM holdfast.runners ORDER BY started_at, boot_id`,
  )
  return found.map((runner) => ({
    bootId: runner.boot_id,
    name: runner.name,
    pid: runner.pid,
    agents: runner.agents,
    capacity: runner.capacity,
    running: runner.running,
    lastSeen: runner.last_seen.toISOString(),
    draining: runner.draining,
    metricsUrl: runner.metrics_url,
  }))
}
