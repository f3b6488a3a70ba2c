import { setTimeout as timer } from 'node:timers/promises'

/** Node fires a timer with a longer delay at once, so longer waits are taken in slices. */
const TIMER_MS_MAX = 2 ** 31 - 1

/** Resolves after `ms`, also beyond 2^31 ms; rejects with the signal's reason when it aborts. */
export async function wait(ms: number, signal?: AbortSignal): Promise<void> {
  let left = Math.max(0, ms)
  do {
    const slice = Math.min(left, TIMER_MS_MAX)
    try {
      await timer(slice, undefined, signal ? { signal } : {})
    } catch (error) {
      signal?.throwIfAborted()
      throw error
    }
    left -= slice
  } while (left > 0)
}

/** Settles like `promise`, or rejects with the signal's reason first. The listener goes with it. */
export async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted()
  const aborted = Promise.withResolvers<never>()
  const onAbort = () => aborted.reject(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    return await Promise.race([promise, aborted.promise])
  } finally {
    signal.removeEventListener('abort', onAbort)
    promise.catch(() => {})
  }
}

/** The value, or `undefined` when it takes longer than `ms`. Never rejects late. */
export async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  const ended = new AbortController()
  try {
    return await Promise.race([
      promise,
      wait(ms, ended.signal).then(
        () => undefined,
        () => undefined,
      ),
    ])
  } finally {
    ended.abort()
    promise.catch(() => {})
  }
}
