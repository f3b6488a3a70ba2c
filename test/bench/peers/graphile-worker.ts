import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import { peerOptions, servePeer } from './queue-peer.ts'

const { databaseUrl: connectionString, batched, jobs } = peerOptions()
const logger = new Logger(() => () => undefined)

/** Its documented way to many jobs: fetch hundreds at a time, and complete them together. */
const FAST = {
  worker: { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 },
}

servePeer(
  async () => {
    const utils = await makeWorkerUtils({ connectionString, logger })
    await utils.migrate()
    for (let made = 0; made < jobs; made += 1000) {
      await utils.addJobs(
        Array.from({ length: 1000 }, (_, n) => ({ identifier: 'bench', payload: { n } })),
      )
    }
    await utils.release()
  },
  (done) => {
    run({
      connectionString,
      logger,
      noHandleSignals: true,
      concurrency: batched ? 24 : 10,
      ...(batched ? { preset: FAST } : {}),
      taskList: { bench: () => done(1) },
    }).catch((error: unknown) => {
      throw error
    })
  },
)
