import { appendEvents, tailRuns } from '@holdfast/store'
import { connect } from '../../support/sql.ts'
import type { Server } from '../server.ts'
import { buffersOf } from './buffers.ts'
import { atMost, type Check } from './check.ts'
import { claimRuns, nextAppend, open } from './claimed-runs.ts'

const FOLLOWERS = 1000
const TAILS = 60

/** What a look at a thousand followed runs costs when none of them has news. */
export async function idleTail(server: Server): Promise<Check[]> {
  await using claimed = await claimRuns(server, FOLLOWERS)
  {
    await using store = open(claimed.databaseUrl, 1)
    for (let n = 0; n < 3; n += 1) await appendEvents(store, claimed.runs.map(nextAppend))
  }
  {
    await using sql = await connect(claimed.databaseUrl)
    await sql('VACUUM ANALYZE')
  }
  const follows = claimed.runs.map(({ lease, sequence }) => ({
    runId: lease.runId,
    after: sequence,
  }))
  const before = await buffersOf(server)
  {
    await using store = open(claimed.databaseUrl, 1)
    for (let n = 0; n < TAILS; n += 1) {
      const news = await tailRuns(store, follows, 500)
      if (news.length > 0) throw new Error('there was nothing new, and something was found')
    }
  }
  const buffers = ((await buffersOf(server)) - before) / TAILS
  return [atMost(`an idle tail of ${FOLLOWERS} followed runs`, buffers, 200, ' buffers')]
}
