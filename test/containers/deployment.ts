import { openStore, violations } from '@holdfast/store'
import { SignJWT } from 'jose'
import { GenericContainer, Network, type StartedNetwork, Wait } from 'testcontainers'
import { expect, inject } from 'vitest'
import { request } from '../support/api.ts'
import { type Checked, checkRun } from '../support/checker.ts'
import { until } from '../support/readers.ts'
import { type Container, startContainer } from './container.ts'
import { type Gateway, openGateway } from './gateway.ts'
import { imageOf } from './images.ts'

export const LEASE_MS = 3000
export const DRAIN_MS = 1000
const COME_UP_MS = 30_000

const SECRET = 'a secret that is long enough for HS256'
const DATABASE = { POSTGRES_USER: 'holdfast', POSTGRES_PASSWORD: 'hold', POSTGRES_DB: 'holdfast' }

export type Bff = Container & {
  /** Where a user reaches this BFF alone. */
  readonly url: string
  /** Where it answers without anything before it, and without a token. */
  readonly address: string
}
export type Runner = Container & { readonly bootId: string }

/** The images of a release as one runs them: a database, two BFFs, runners; users come over gateways. */
export type Deployment = AsyncDisposable & {
  readonly networkId: string
  readonly database: Container
  readonly bffs: readonly [Bff, Bff]
  /** The ones that were not ended. */
  readonly runners: readonly Runner[]
  /** Where a user reaches the first BFF that answers. */
  readonly url: string
  startRunner(): Promise<Runner>
  /** The runner is not one of ours any more. */
  forget(runner: Runner): void
  /** The runner that executes the run, as soon as there is one. */
  ownerOf(runId: string): Promise<Runner>
  /** After a test: no invariant is violated; if it passed, every run is checked and every container lives. */
  check(context: { task: { result?: { state: string } | undefined } }): Promise<void>
}

export async function startDeployment(options: { runners: number }): Promise<Deployment> {
  await using cleanup = new AsyncDisposableStack()
  const network = cleanup.use(await startNetwork())
  const database = cleanup.use(await startDatabase(network))
  await migrate(network)
  const [user, operator] = [await token('user'), await token('operator')]
  const ofBffs = Array.from({ length: 2 }, () => startBff(network, user))
  const runners: Runner[] = []

  async function listed() {
    const headers = { authorization: `Bearer ${operator}` }
    const { body } = await request(`${deployment.url}/runners`, { headers })
    return body['runners'] as unknown as { bootId: string; name: string }[]
  }

  async function startRunner(): Promise<Runner> {
    const container = cleanup.use(await startContainer(runnerDefinition(network)))
    const hostname = container.id.slice(0, 12)
    let bootId: string | undefined
    await until(`runner ${hostname} registers`, COME_UP_MS, async () => {
      bootId = (await listed()).find(({ name }) => name === `${hostname}/1`)?.bootId
      return bootId !== undefined
    })
    const runner = { ...container, bootId: String(bootId) }
    runners.push(runner)
    return runner
  }

  async function ownerOf(runId: string): Promise<Runner> {
    let bootId: string | undefined
    await until(`a runner claims ${runId}`, COME_UP_MS, async () => {
      const run = (await request(`${deployment.url}/runs/${runId}`)).body as unknown
      bootId = (run as Checked['run']).attempts.at(-1)?.runner
      return bootId !== undefined
    })
    const owner = runners.find((runner) => runner.bootId === bootId)
    if (!owner) throw new Error(`runner ${bootId} is none of ours`)
    return owner
  }

  const bffs = (await Promise.all(ofBffs)) as [Bff, Bff]
  for (const bff of bffs) cleanup.use(bff)
  const edge = cleanup.use(await openGateway(() => bffs.map(({ address }) => address), user))
  const ending = new AsyncDisposableStack()
  const deployment: Deployment = {
    networkId: network.getId(),
    database,
    bffs,
    runners,
    url: edge.url,
    startRunner,
    ownerOf,
    forget(runner) {
      runners.splice(runners.indexOf(runner), 1)
    },
    async check({ task }) {
      await using store = openStore({
        databaseUrl: databaseUrl('127.0.0.1', database.port(5432)),
        applicationName: 'holdfast test',
        poolMax: 2,
      })
      expect(await violations(store)).toEqual([])
      if (task.result?.state === 'fail') return
      const { body } = await request(`${edge.url}/runs?limit=100`)
      for (const { runId } of body['runs'] as unknown as { runId: string }[]) {
        await checkRun(edge.url, runId)
      }
      expect(await violations(store)).toEqual([])
      for (const container of [database, ...bffs, ...runners]) await container.check()
    },
    [Symbol.asyncDispose]: () => ending.disposeAsync(),
  }
  await Promise.all(Array.from({ length: options.runners }, startRunner))
  ending.use(cleanup.move())
  return deployment
}
