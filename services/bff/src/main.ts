import { asError, loop, shutdownRequested, startAll, wait, within } from '@holdfast/std'
import { openStore, openWakeups, type Store, schemaStatus, syncClock } from '@holdfast/store'
import type { FastifyInstance } from 'fastify'
import { type Logger, pino } from 'pino'
import pretty from 'pino-pretty'
import { buildApp } from './app.ts'
import { type BffConfig, parseConfig } from './config.ts'

const CLOSE_MS_MAX = 4000
const SCHEMA_POLL_MS = 1000
const CLOCK_SYNC_MS = 60_000
const POOL_MAX = 10

const config = configOrExit()
const log = logger(config)
const shutdown = shutdownRequested()
const stopping = new AbortController()

if (config.auth.mode === 'open') {
  log.warn('open mode: every caller is user dev of tenant dev, an operator')
}
try {
  await serve(config, log)
  log.info('stopped')
  process.exit(0)
} catch (error) {
  log.fatal({ err: asError(error) }, 'died')
  process.exit(1)
}

async function serve(config: BffConfig, log: Logger): Promise<void> {
  await using stack = new AsyncDisposableStack()
  const store = stack.use(
    openStore({
      databaseUrl: config.databaseUrl,
      // Two addresses mean that the first is a transaction pooler, which keeps no session settings.
      pooled: config.directUrl !== config.databaseUrl,
      applicationName: 'holdfast-bff',
      poolMax: POOL_MAX,
      onPoolError: (err) => log.warn({ err }, 'an idle database connection was lost'),
    }),
  )
  const wakeups = stack.use(
    openWakeups({
      databaseUrl: config.directUrl,
      applicationName: 'holdfast-bff',
      onError: (err) => log.warn({ err }, 'wake-ups are interrupted; polling goes on'),
    }),
  )
  const clock = loop({
    name: 'clock',
    everyMs: CLOCK_SYNC_MS,
    round: () => syncClock(store),
    onError: (err) => log.warn({ err }, "the database's clock could not be read"),
  })
  await startAll(stack, [clock])
  const app = await buildApp({ store, wakeups, config, log })
  app.phase.current = 'waiting'
  stack.defer(() => close(app, log))
  await app.listen({ host: config.host, port: config.port })
  const address = app.server.address()
  const port = typeof address === 'object' && address ? address.port : config.port
  log.info({ port }, 'listening')
  process.send?.({ type: 'listening', port })

  const serving = serveOnceCurrent(store, app, log, stopping.signal)
  log.info({ cause: await Promise.race([shutdown, app.failed]) }, 'stopping')
  stopping.abort()
  await serving
}

/** Migrating is somebody else's job: until it is done, this process says so and waits. */
async function serveOnceCurrent(
  store: Store,
  app: FastifyInstance,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  let said = ''
  while (!signal.aborted) {
    const status = await schemaStatus(store).catch((error: unknown) => asError(error).message)
    if (status === 'current') {
      // Ids made by a wrong clock would fall into partitions that do not exist.
      await syncClock(store).catch(() => {})
      if (!signal.aborted) app.phase.current = 'serving'
      return
    }
    if (status !== said) log.warn({ schema: status }, 'waiting for the current database schema')
    said = status
    await wait(SCHEMA_POLL_MS, signal).catch(() => {})
  }
}

/** Ends the streams, waits for the requests under way, and does not wait for ever. */
async function close(app: FastifyInstance, log: Logger): Promise<void> {
  app.phase.current = 'draining'
  const closed = app.close().then(() => true)
  if (await within(CLOSE_MS_MAX, closed)) return
  log.warn('connections were cut because they did not end in time')
  app.server.closeAllConnections()
  await closed
}

function configOrExit(): BffConfig {
  try {
    return parseConfig(process.env)
  } catch (error) {
    process.stderr.write(`holdfast bff: ${asError(error).message}\n`)
    process.exit(1)
  }
}

function logger({ logLevel: level }: BffConfig): Logger {
  const base = { service: 'bff' }
  if (process.stderr.isTTY) return pino({ level, base }, pretty({ destination: 2, sync: true }))
  return pino({ level, base }, pino.destination({ dest: 2, sync: true }))
}
