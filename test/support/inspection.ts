// Loaded into a service before its own code: lets a test ask what the process holds, after a full collection.

import { queryObjects } from 'node:v8'
import { isMainThread } from 'node:worker_threads'

export type Inspection = {
  readonly heapBytes: number
  /** Whatever keeps the process alive or could call back into it, by kind: timers, sockets, servers. */
  readonly resources: Readonly<Record<string, number>>
  /** A listener or callback that somebody still holds is a function; what it knows of a run holds a signal. */
  readonly objects: {
    readonly functions: number
    readonly signals: number
    readonly promises: number
  }
}

if (isMainThread && process.send) {
  process.on('message', (message: { inspect?: number }) => {
    if (message.inspect !== undefined) process.send?.({ inspected: message.inspect, ...inspect() })
  })
  // Who waits to be asked must not live for that alone.
  process.channel?.unref()
}

function inspect(): Inspection {
  // Each of these collects all garbage first.
  const objects = {
    functions: queryObjects(Function, { format: 'count' }),
    signals: queryObjects(AbortSignal, { format: 'count' }),
    promises: queryObjects(Promise, { format: 'count' }),
  }
  const resources: Record<string, number> = {}
  for (const kind of process.getActiveResourcesInfo()) resources[kind] = (resources[kind] ?? 0) + 1
  return { heapBytes: process.memoryUsage().heapUsed, resources, objects }
}
