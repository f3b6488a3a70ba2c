import { openStore, violations } from '@holdfast/store'
import { SignJWT } from 'jose'
import { expect } from 'vitest'
import { request } from '../support/api.ts'
import { type Checked, checkRun } from '../support/checker.ts'
import { until } from '../support/readers.ts'
import type { Container } from './container.ts'
import { openGateway } from './gateway.ts'
import {
  addressOf,
  databaseUrlOf,
  JWT_SECRET,
  migrate,
  startBff,
  startDatabase,
  startNetwork,
  startRunner,
} from './release.ts'

const REGISTERED_MS = 20_000
const CLAIMED_MS = 20_000

export type Bff = Container & {
  /** Where a user reaches this BFF alone. */
  readonly url: string
  /** Where it answers itself, without a token. */
  readonly address: string
}
export type Runner = Container & { readonly bootId: string }

/** The images as one runs them: a database, two BFFs, runners. The user comes over gateways. */
export type Deployment = AsyncDisposable & {
  readonly networkId: string
  readonly database: Container
  readonly bffs: readonly [Bff, Bff]
  /** All that were ever started. */
  readonly runners: readonly Runner[]
  /** Where a user reaches the first BFF that answers. */
  readonly url: string
  startRunner(): Promise<Runner>
  readRun(runId: string): Promise<Checked['run']>
  /** The runner that executes the run, as soon as there is one. */
  ownerOf(runId: string): Promise<Runner>
  /** After a test: no invariant is violated; if it passed, every run is checked and every container lives. */
  check(context: { task: { result?: { state: string } | undefined } }): Promise<void>
}

export async function startDeployment(options: { runners: number }): Promise<Deployment> {
  await using cleanup = new AsyncDisposableStack()
  const containers: Container[] = []
  const kept = async <C extends Container>(starting: Promise<C>): Promise<C> => {
    const container = await starting
    containers.push(container)
    return container
  }
  const network = cleanup.use(await startNetwork())
  cleanup.defer(() => disposeAll(containers))
  const database = await kept(startDatabase(network))
  await migrate(network)
  const user = await token({ sub: 'ada', tenant: 'acme' })
  const asOperator = await token({ sub: 'ops', tenant: 'acme', role: 'operator' })
  const [first, second] = await Promise.all([startBff(network), startBff(network)].map(kept))
  if (!first || !second) throw new Error('two BFFs were started')
  const addresses = [first, second].map(addressOf)
  const [gateway, ...single] = await Promise.all(
    [addresses, ...addresses.map((address) => [address])].map((each) => openGateway(each, user)),
  )
  if (!gateway) throw new Error('three gateways were opened')
  for (const each of [gateway, ...single]) cleanup.use(each)
  const reachable = (bff: Container, at: number): Bff => ({
    ...bff,
    url: single[at]?.url ?? '',
    address: addresses[at] ?? '',
  })
  const runners: Runner[] = []
  const { url } = gateway

  async function addRunner(): Promise<Runner> {
    const container = await kept(startRunner(network))
    let bootId: string | undefined
    await until(`runner ${container.hostname} registers`, REGISTERED_MS, async () => {
      const { body } = await request(`${addresses[0]}/runners`, { headers: bearer(asOperator) })
      const listed = body['runners'] as unknown as { bootId: string; name: string }[]
      bootId = listed.find(({ name }) => name === `${container.hostname}/1`)?.bootId
      return bootId !== undefined
    })
    const runner = { ...container, bootId: String(bootId) }
    runners.push(runner)
    return runner
  }

  const readRun = async (runId: string) =>
    (await request(`${url}/runs/${runId}`)).body as unknown as Checked['run']

  await Promise.all(Array.from({ length: options.runners }, addRunner))
  const ending = cleanup.move()
  return {
    networkId: network.getId(),
    database,
    bffs: [reachable(first, 0), reachable(second, 1)],
    runners,
    url,
    startRunner: addRunner,
    readRun,
    async ownerOf(runId) {
      let bootId: string | undefined
      await until(`a runner claims ${runId}`, CLAIMED_MS, async () => {
        bootId = (await readRun(runId)).attempts.at(-1)?.runner
        return bootId !== undefined
      })
      const owner = runners.find((runner) => runner.bootId === bootId)
      if (!owner) throw new Error(`runner ${bootId} is none of ours`)
      return owner
    },
    async check({ task }) {
      await expectNoViolation(database)
      if (task.result?.state === 'fail') return
      const { body } = await request(`${url}/runs?limit=100`)
      for (const { runId } of body['runs'] as unknown as { runId: string }[]) {
        await checkRun(url, runId)
      }
      await expectNoViolation(database)
      for (const container of containers) await container.check()
    },
    [Symbol.asyncDispose]: () => ending.disposeAsync(),
  }
}

/** Asked at an address of its own each time, since a restart gives the database another one. */
async function expectNoViolation(database: Container): Promise<void> {
  const databaseUrl = databaseUrlOf(database)
  await using store = openStore({ databaseUrl, applicationName: 'holdfast test', poolMax: 2 })
  expect(await violations(store)).toEqual([])
}

function token(claims: Record<string, string>): Promise<string> {
  const key = new TextEncoder().encode(JWT_SECRET)
  return new SignJWT(claims).setProtectedHeader({ alg: 'HS256' }).sign(key)
}

function bearer(jwt: string): Record<string, string> {
  return { authorization: `Bearer ${jwt}` }
}

async function disposeAll(containers: readonly Container[]): Promise<void> {
  const ends = await Promise.allSettled(containers.map((each) => each[Symbol.asyncDispose]()))
  const failed = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason as unknown] : []))
  if (failed.length) throw new AggregateError(failed, 'containers could not be removed')
}
