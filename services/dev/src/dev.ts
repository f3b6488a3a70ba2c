import { fileURLToPath } from 'node:url'
import { asError, HoldfastError, unlessAborted } from '@holdfast/std'
import { migrate } from '@holdfast/store'
import type { Logger } from 'pino'
import { ensurePortFree, untilReady, urlOf } from './address.ts'
import { type Child, keepRunning } from './child.ts'
import { type Config, type Environment, parseConfig } from './config.ts'
import { claimDataFolder } from './data-folder.ts'
import { startEmbedded } from './embedded.ts'
import { openLog } from './log.ts'
import { endLeftovers, openProcessRecord } from './process-record.ts'

/** What a drain may take beyond DRAIN_SECONDS before the process is killed. */
const DRAIN_SLACK_MS = 10_000

type Place = {
  readonly databaseUrl: string
  readonly hold: ChildHold
  readonly failed: Promise<never>
  readonly onSpawn: (pid: number) => Promise<void>
}
type ChildHold = Parameters<typeof keepRunning>[0]['hold']

/**
 * A whole Holdfast on one machine: database, schema, one BFF, the runners. Prints one line on standard
 * output when it is ready, and ends in reverse order when `shutdown` resolves. Returns the exit code.
 */
export async function dev(env: Environment, shutdown: Promise<unknown>): Promise<number> {
  const parsed = parseConfig(env)
  if (parsed.kind === 'invalid') return refuse(parsed.message)
  const { config } = parsed
  const log = openLog(config.logLevel)
  const stopping = new AbortController()
  shutdown
    .then((reason) => {
      log.info({ reason }, 'shutting down')
      stopping.abort(reason)
    })
    .catch((error) => stopping.abort(error))
  const stack = new AsyncDisposableStack()
  try {
    return await serve(config, env, log, stack, stopping.signal)
  } catch (error) {
    if (stopping.signal.aborted) return 0
    if (error instanceof HoldfastError) {
      // A process that could not start has said why itself, in one line.
      return error.code === 'start_failed' ? 1 : refuse(error.message)
    }
    log.fatal({ err: asError(error) }, 'unexpected')
    return 1
  } finally {
    await stack.disposeAsync()
    if (stopping.signal.aborted) log.info('stopped')
  }
}

/** One line for the person at the terminal. */
function refuse(message: string): 1 {
  process.stderr.write(`holdfast: ${message}\n`)
  return 1
}

/** Starts everything and stays until a part is gone for good or the signal aborts: it only throws. */
async function serve(
  config: Config,
  env: Environment,
  log: Logger,
  stack: AsyncDisposableStack,
  signal: AbortSignal,
): Promise<never> {
  const place = await openPlace(config, log, stack, signal)
  signal.throwIfAborted()
  await unlessAborted(migrate(place.databaseUrl, log), signal)
  signal.throwIfAborted()

  let port = config.port
  const shared = { ...env, DATABASE_URL: place.databaseUrl, HOLDFAST_DATA_DIR: config.dataDir }
  // The embedded server is reached directly; whatever this names belongs to another database.
  if (!config.databaseUrl) Object.assign(shared, { DATABASE_DIRECT_URL: '' })
  const graceMs = config.drainMs + DRAIN_SLACK_MS
  const common = { log, hold: place.hold, onSpawn: place.onSpawn }
  const bffEnv = () => ({ ...shared, HOST: config.host, PORT: String(port) })
  const bff = keepRunning({ ...common, name: 'bff', script: script('bff'), env: bffEnv })
  stack.defer(() => bff.stop(graceMs))
  const runners = Array.from({ length: config.runners }, (_, index) =>
    keepRunning({
      ...common,
      name: `runner ${index + 1}`,
      script: script('runner'),
      // Whoever writes an agent sees a change of its file in the next run.
      args: ['--reload'],
      env: () => ({ ...shared, RUNNER_METRICS_PORT: metricsPort(config, index) }),
    }),
  )
  stack.defer(async () => {
    await Promise.all(runners.map((runner) => runner.stop(graceMs)))
  })
  const failed = Promise.race([place.failed, bff.failed, ...runners.map((runner) => runner.failed)])
  failed.catch(() => {})

  const listening = bff.up.then((message) => {
    if ('port' in message) port = message.port
    return port
  })
  const started = ready(config.host, listening, runners, signal)
  await unlessAborted(Promise.race([started, failed]), signal)
  process.stdout.write(`Holdfast is ready at ${urlOf(config.host, port)}\n`)
  return unlessAborted(failed, signal)
}

/** The database, and what watches over it when it is ours. */
async function openPlace(
  config: Config,
  log: Logger,
  stack: AsyncDisposableStack,
  signal: AbortSignal,
): Promise<Place> {
  if (config.databaseUrl) {
    await ensurePortFree(config.host, config.port)
    const never = new Promise<never>(() => {})
    return {
      databaseUrl: config.databaseUrl,
      hold: undefined,
      failed: never,
      onSpawn: async () => {},
    }
  }
  stack.use(await claimDataFolder(config.dataDir))
  const leftovers = await endLeftovers(config.dataDir)
  if (leftovers > 0) log.warn({ leftovers }, 'processes of a start that was killed were ended')
  await ensurePortFree(config.host, config.port)
  const server = stack.use(await startEmbedded(config.dataDir, log, signal))
  const record = openProcessRecord(config.dataDir)
  return { databaseUrl: server.url, hold: server.hold, failed: server.failed, onSpawn: record.add }
}

async function ready(
  host: string,
  listening: Promise<number>,
  runners: readonly Child[],
  signal: AbortSignal,
): Promise<void> {
  await untilReady(`${urlOf(host, await listening)}/readyz`, signal)
  if (runners.length > 0) await Promise.race(runners.map((runner) => runner.up))
}

/** Runners on one machine cannot share a port: they take the given one and those after it. */
function metricsPort({ runnerMetricsPort }: Config, index: number): string {
  if (runnerMetricsPort === undefined) return ''
  return String(runnerMetricsPort === 0 ? 0 : runnerMetricsPort + index)
}

function script(service: string): string {
  return fileURLToPath(new URL(`../../${service}/src/main.ts`, import.meta.url))
}
