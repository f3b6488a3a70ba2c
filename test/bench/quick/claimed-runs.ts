import { type Append, type Claimed, claimQueued, openStore, type Store } from '@holdfast/store'
import { fillQueue } from '../fill-queue.ts'
import type { Server } from '../server.ts'

/** Runs that are held by us, on a database of their own, to be written to as a runner does. */
export type ClaimedRuns = AsyncDisposable & {
  readonly databaseUrl: string
  readonly runs: readonly HeldRun[]
}

export type HeldRun = { readonly lease: Claimed['lease']; sequence: number }

export const OWNER = '01890000-0000-7000-8000-000000000001'

export async function claimRuns(server: Server, count: number): Promise<ClaimedRuns> {
  await using cleanup = new AsyncDisposableStack()
  const database = cleanup.use(await server.database())
  await fillQueue(database.url, count, { message: 'hello' })
  await using store = open(database.url, 1)
  const claim = { owner: OWNER, agents: ['demo'], leaseMs: 3_600_000, limit: count }
  const claimed = await claimQueued(store, claim)
  if (claimed.length !== count) throw new Error(`${claimed.length} of ${count} runs were claimed`)
  const ending = cleanup.move()
  return {
    databaseUrl: database.url,
    runs: claimed.map(({ lease, lastSequence }) => ({ lease, sequence: lastSequence })),
    [Symbol.asyncDispose]: () => ending.disposeAsync(),
  }
}

export function open(databaseUrl: string, poolMax: number): Store {
  return openStore({ databaseUrl, applicationName: 'bench', poolMax, statementMs: 30_000 })
}

const DELTA = JSON.stringify({
  type: 'TEXT_MESSAGE_CONTENT',
  messageId: '01890000-0000-7000-8000-000000000002.1.m1',
  delta: 'some words of an answer ',
})

/** The next event of a run; it counts as written. */
export function nextAppend(run: HeldRun): Append {
  const base = run.sequence
  run.sequence += 1
  return { lease: run.lease, base, events: [{ type: 'TEXT_MESSAGE_CONTENT', json: DELTA }] }
}
