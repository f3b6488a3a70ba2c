import { PgBoss } from 'pg-boss'
import { peerOptions, servePeer } from './queue-peer.ts'

const { databaseUrl, batched, jobs } = peerOptions()
const boss = new PgBoss({ connectionString: databaseUrl, max: 10 })
boss.on('error', (error) => {
  throw error
})
const LOOPS = batched ? 4 : 10
const batchSize = batched ? 50 : 1

servePeer(
  async () => {
    await boss.start()
    await boss.createQueue('bench')
    for (let made = 0; made < jobs; made += 1000) {
      await boss.insert(
        'bench',
        Array.from({ length: 1000 }, (_, n) => ({ data: { n } })),
      )
    }
  },
  (done) => {
    // Its `work` polls every two seconds, so it is asked as fast as it answers.
    for (let loop = 0; loop < LOOPS; loop += 1) drain(done).catch(fail)
  },
)

async function drain(done: (jobs: number) => void) {
  for (;;) {
    const fetched = await boss.fetch('bench', { batchSize })
    if (fetched.length === 0) return
    await boss.complete(
      'bench',
      fetched.map(({ id }) => id),
    )
    done(fetched.length)
  }
}

function fail(error: unknown): never {
  throw error
}
