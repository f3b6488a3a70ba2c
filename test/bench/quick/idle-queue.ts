import { claimQueued, endOverdueQueued } from '@holdfast/store'
import { connect } from '../../support/sql.ts'
import { fillQueue } from '../fill-queue.ts'
import type { Server } from '../server.ts'
import { buffersOf } from './buffers.ts'
import { atMost, type Check } from './check.ts'
import { OWNER, open } from './claimed-runs.ts'

const WAITING = 10_000
const LOOKS = 20

/** What runners pay for looking at a queue in which nothing can be done: half of it is parked, half backs off. */
export async function idleQueue(server: Server): Promise<Check[]> {
  await using database = await server.database()
  await fillQueue(database.url, WAITING, { message: 'hello' })
  {
    await using sql = await connect(database.url)
    await sql(
      `UPDATE holdfast.runs SET available_at = CASE WHEN right(id::text, 1) < '8' THEN 'infinity'
         ELSE clock_timestamp() + interval '1 hour' END`,
    )
    await sql('VACUUM ANALYZE')
  }
  const claim = { owner: OWNER, agents: ['demo'], leaseMs: 30_000, limit: 100 }
  const before = await buffersOf(server)
  {
    await using store = open(database.url, 1)
    for (let n = 0; n < LOOKS; n += 1) {
      const claimed = await claimQueued(store, claim)
      const { ended } = await endOverdueQueued(store, 100)
      if (claimed.length + ended.length > 0)
        throw new Error('nothing was due, and something was found')
    }
  }
  const buffers = ((await buffersOf(server)) - before) / LOOKS
  return [atMost(`a claim and a sweep beside ${WAITING} runs that wait`, buffers, 300, ' buffers')]
}
