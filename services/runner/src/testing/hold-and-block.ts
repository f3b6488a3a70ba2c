// A runner reduced to its lease: claims one run of the demo agent and holds it. On `{ blockMs }` it blocks its main
// loop for so long; after each it says what it still holds. Arguments: database URL, lease in milliseconds.
import { randomUUID } from 'node:crypto'
import { invariant, wait } from '@holdfast/std'
import { claimQueued, openStore } from '@holdfast/store'
import { now } from '../instant.ts'
import { leaseKeeper } from '../lease-keeper.ts'

const [databaseUrl, lease] = process.argv.slice(2)
invariant(databaseUrl && lease, 'a database URL and a lease are given')
const leaseMs = Number(lease)
const applicationName = 'holdfast hold and block'
const owner = randomUUID()
const store = openStore({ databaseUrl, applicationName, poolMax: 1 })
const keeper = leaseKeeper({
  databaseUrl,
  applicationName,
  bootId: owner,
  leaseMs,
  onRefused: () => undefined,
  onTrouble: say,
  onForgotten: () => undefined,
})
await keeper.start()

let claimedAt = now()
let claimed = await claimQueued(store, { owner, agents: ['demo'], leaseMs, limit: 1 })
while (claimed.length === 0) {
  await wait(20)
  claimedAt = now()
  claimed = await claimQueued(store, { owner, agents: ['demo'], leaseMs, limit: 1 })
}
const [run] = claimed
invariant(run, 'a run was claimed')
let lost = false
const held = keeper.hold(run.lease, claimedAt, {
  cancel: () => undefined,
  lost: () => {
    lost = true
  },
})
process.on('message', ({ blockMs }: { blockMs: number }) => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, blockMs)
  // What the keeper's thread said meanwhile is heard first.
  setTimeout(() => process.send?.({ lost, leftMs: held.leftMs() }), 500)
})
process.send?.({ runId: run.lease.runId })

function say(message: string) {
  process.stderr.write(`${message}\n`)
}
