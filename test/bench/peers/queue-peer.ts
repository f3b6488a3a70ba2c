// What each queue that stands beside Holdfast does as a child process: fill, say so, work when told, tell how far it is.

/** `fill` makes the jobs; `work` begins to do them with a handler that does nothing, and calls `done` for each. */
export function servePeer(fill: () => Promise<void>, work: (done: (jobs: number) => void) => void) {
  let count = 0
  process.on('message', ({ order }: { order: string }) => {
    if (order === 'work') {
      work((jobs) => {
        count += jobs
      })
    }
    if (order === 'count') process.send?.({ count, atMs: performance.now() })
  })
  fill().then(
    () => process.send?.({ ready: true }),
    (error: unknown) => {
      throw error
    },
  )
}

/** The environment of a peer: where its database is, how it works, how many jobs it gets. */
export function peerOptions() {
  const { DATABASE_URL = '', PEER_MODE = '', PEER_JOBS = '0' } = process.env
  return { databaseUrl: DATABASE_URL, batched: PEER_MODE === 'batched', jobs: Number(PEER_JOBS) }
}
