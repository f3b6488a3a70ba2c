// Loaded into a runner before its own code: on `{ blockMs }` its main loop is stuck for so long.
import { isMainThread } from 'node:worker_threads'

if (isMainThread) {
  process.on('message', ({ blockMs }: { blockMs?: number }) => {
    if (blockMs) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, blockMs)
  })
}
