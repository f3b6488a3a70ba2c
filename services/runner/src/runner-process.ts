import { readFile } from 'node:fs/promises'
import { hostname } from 'node:os'
import { dirname } from 'node:path'
import { openArtifactStore } from '@holdfast/artifacts'
import { type AgentsFile, BUILT_IN_AGENTS, defaultAgent, parseAgentsFile } from '@holdfast/protocol'
import { asError, HoldfastError, shutdownRequested, wait } from '@holdfast/std'
import { newId, openStore, openWakeups, type Store, schemaStatus } from '@holdfast/store'
import { type Logger, pino } from 'pino'
import type { Agent } from './agents/agent.ts'
import { createAgents } from './agents/create-agents.ts'
import { openModules } from './agents/module/modules.ts'
import { catchStrays } from './agents/module/strays.ts'
import { parseConfig, type RunnerConfig } from './config.ts'
import { createMetrics } from './metrics.ts'
import { openOpsServer } from './ops-server.ts'
import type { Probes } from './probes.ts'
import { runRunner } from './runner.ts'

const SCHEMA_WAIT_MS = 1000

type Options = {
  /** A test's. */
  probes?: Probes
  /** A test's own agents, under names that the agents file has. */
  agents?: ReadonlyMap<string, Agent>
  /** Modules that are changed are loaded again: for whoever writes them. */
  reload?: boolean
}

/** A runner from its environment to its exit; the process ends with it. */
export async function runnerProcess(env: NodeJS.ProcessEnv, options: Options = {}): Promise<never> {
  try {
    await live(env, options)
  } catch (error) {
    // What an operator has to correct is one line; everything else is a bug and shows where it is.
    const expected = error instanceof HoldfastError && error.kind === 'invalid'
    process.stderr.write(`holdfast runner: ${expected ? error.message : asError(error).stack}\n`)
    process.exitCode = 1
  }
  process.exit()
}

async function live(env: NodeJS.ProcessEnv, { probes = {}, reload = false, ...more }: Options) {
  const config = parseConfig(env)
  const file = await readAgents(config, env)
  const log = pino(
    { name: 'runner', level: config.logLevel },
    process.stderr.isTTY ? await pretty() : pino.destination(2),
  )
  const requested = shutdownRequested()
  const name = `${hostname()}/${process.pid}`
  const metrics = createMetrics()

  await using stack = new AsyncDisposableStack()
  const configured = await createAgents(file, {
    outbound: { allow: config.outboundAllow, openMode: config.openMode },
    modules: stack.use(openModules({ folder: dirname(config.agentsFile ?? '.'), reload, log })),
    strays: stack.use(catchStrays()),
    log,
  })
  stack.defer(async () => {
    await Promise.all([...agents.values()].map(async (agent) => await agent.close?.()))
  })
  const agents = new Map([...configured, ...(more.agents ?? [])])
  const store = stack.use(
    openStore({
      databaseUrl: config.databaseUrl,
      applicationName: 'holdfast runner',
      poolMax: 8,
      idleInTransactionMs: Math.max(500, config.leaseMs / 6),
      pooled: config.directUrl !== config.databaseUrl,
      onPoolError: (error) => log.warn({ err: error }, 'a database connection was lost'),
    }),
  )
  if (!(await schemaIsCurrent(store, log, requested))) return
  const wakeups = stack.use(
    openWakeups({
      databaseUrl: config.directUrl,
      applicationName: 'holdfast runner',
      onError: (error) => log.warn({ err: error }, 'wake-ups are interrupted; polling goes on'),
    }),
  )
  const ops =
    config.metricsPort === null
      ? null
      : stack.use(
          await openOpsServer({
            host: config.host,
            port: config.metricsPort,
            metrics,
            ready: async () => (await schemaStatus(store)) === 'current',
          }),
        )
  const bootId = newId(store)
  await runRunner({
    config,
    store,
    artifactStore: openArtifactStore(config.artifacts),
    wakeups,
    agents,
    agentRecords: recordsOf(file),
    metrics,
    log,
    bootId,
    name,
    metricsUrl: ops ? `${ops.url}/metrics` : null,
    requested,
    probes,
    onRegistered: () => process.send?.({ type: 'registered', bootId }),
  })
}

async function readAgents(config: RunnerConfig, env: NodeJS.ProcessEnv): Promise<AgentsFile> {
  if (config.agentsFile === null) return BUILT_IN_AGENTS
  let json: unknown
  try {
    json = JSON.parse(await readFile(config.agentsFile, 'utf8'))
  } catch (error) {
    throw new HoldfastError(
      'invalid',
      'invalid_config',
      `HOLDFAST_AGENTS: expected the path of a readable JSON file (${asError(error).message})`,
    )
  }
  return parseAgentsFile(json, env)
}

function recordsOf(file: AgentsFile) {
  const preferred = defaultAgent(file)
  return Object.entries(file.agents).map(([name, spec]) => ({
    name,
    type: spec.type,
    isDefault: name === preferred,
    limits: {
      maxAttempts: spec.maxAttempts,
      onLost: spec.onLost,
      effects: spec.effects,
      deadlineMs: spec.deadlineMs,
      maxQueueMs: spec.maxQueueMs,
      history: spec.history,
    },
  }))
}

/** A runner never migrates by itself: it waits, and says so. False: it was asked to end meanwhile. */
async function schemaIsCurrent(
  store: Store,
  log: Logger,
  requested: Promise<unknown>,
): Promise<boolean> {
  const ending = new AbortController()
  requested.finally(() => ending.abort()).catch(() => undefined)
  for (let said = ''; !ending.signal.aborted; ) {
    const status = await schemaStatus(store).catch((error: unknown) => asError(error).message)
    if (status === 'current') return true
    if (status !== said) log.warn({ status }, 'waiting for the database schema to be current')
    said = status
    await wait(SCHEMA_WAIT_MS, ending.signal).catch(() => undefined)
  }
  return false
}

async function pretty() {
  const { default: prettyStream } = await import('pino-pretty')
  return prettyStream({ destination: 2, sync: true })
}
