import { randomUUID } from 'node:crypto'
import { GenericContainer, Network, type StartedNetwork, Wait } from 'testcontainers'
import { inject } from 'vitest'
import { type Container, startContainer } from './container.ts'
import { imageOf, type Target } from './images.ts'

const LEASE_SECONDS = 3
/** Short, so that a runner that is replaced hands runs back instead of seeing them end. */
const DRAIN_SECONDS = 1
export const JWT_SECRET = 'a secret that is long enough for HS256'

const DATABASE_PORT = 5432
const BFF_PORT = 3000
const RUNNER_PORT = 9464
const COME_UP_MS = 40_000

/** For both: who is somebody to the BFFs is not open mode to the runners either. */
const SERVICE = {
  DATABASE_URL: databaseUrl('database', DATABASE_PORT),
  AUTH_JWT_SECRET: JWT_SECRET,
}

/** Named after this run of the suite, so that it can be found if nobody disposes it. */
export function startNetwork(): Promise<StartedNetwork> {
  return new Network({ nextUuid: () => `${inject('containerRun')}-${randomUUID()}` }).start()
}

export function startDatabase(network: StartedNetwork): Promise<Container> {
  const definition = new GenericContainer('postgres:15-bookworm')
    .withEnvironment({
      POSTGRES_USER: 'holdfast',
      POSTGRES_PASSWORD: 'holdfast',
      POSTGRES_DB: 'holdfast',
    })
    .withNetworkAliases('database')
    .withExposedPorts(DATABASE_PORT)
  return startContainer('database', definition.withNetwork(network).withStartupTimeout(COME_UP_MS))
}

/** Where the test reaches the database; another address after a restart. */
export function databaseUrlOf(database: Container): string {
  return databaseUrl('127.0.0.1', database.port(DATABASE_PORT))
}

/** Resolves when the database has the schema; rejects if the migration ends with anything but 0. */
export async function migrate(network: StartedNetwork): Promise<void> {
  const definition = image('migrate', network).withWaitStrategy(Wait.forOneShotStartup())
  await using _ended = await startContainer('migrate', definition)
}

export function startBff(network: StartedNetwork): Promise<Container> {
  const definition = image('bff', network)
    .withExposedPorts(BFF_PORT)
    .withWaitStrategy(Wait.forHttp('/readyz', BFF_PORT))
  return startContainer('bff', definition)
}

export function addressOf(bff: Container): string {
  return `http://127.0.0.1:${bff.port(BFF_PORT)}`
}

export function startRunner(network: StartedNetwork): Promise<Container> {
  const definition = image('runner', network)
    .withExposedPorts(RUNNER_PORT)
    .withWaitStrategy(Wait.forHttp('/readyz', RUNNER_PORT))
  return startContainer('runner', definition)
}

function image(target: Target, network: StartedNetwork): GenericContainer {
  const settings = { LEASE_SECONDS: `${LEASE_SECONDS}`, DRAIN_SECONDS: `${DRAIN_SECONDS}` }
  return new GenericContainer(imageOf(target))
    .withNetwork(network)
    .withEnvironment({ ...SERVICE, ...(target === 'runner' ? settings : {}) })
    .withStartupTimeout(COME_UP_MS)
}

function databaseUrl(host: string, port: number): string {
  return `postgres://holdfast:holdfast@${host}:${port}/holdfast`
}
