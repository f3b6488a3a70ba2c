/** A timer with a longer delay fires at once, so longer waits are taken in slices. */
const TIMER_MS_MAX = 2 ** 31 - 1

/** Resolves after `ms`, also beyond 2^31 ms; rejects with the signal's reason when it aborts. */
export async function wait(ms: number, signal?: AbortSignal): Promise<void> {
  let left = Math.max(0, ms)
  do {
    const slice = Math.min(left, TIMER_MS_MAX)
    await slept(slice, signal)
    left -= slice
  } while (left > 0)
}

function slept(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason)
    const timer = setTimeout(end, ms)
    signal?.addEventListener('abort', onAbort, { once: true })
    function end() {
      signal?.removeEventListener('abort', onAbort)
      resolve()
    }
    function onAbort() {
      clearTimeout(timer)
      reject(signal?.reason)
    }
  })
}

/** Settles like `promise`, or rejects with the signal's reason first. The listener goes with it. */
export async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  promise.catch(() => {})
  signal.throwIfAborted()
  const aborted = Promise.withResolvers<never>()
  const onAbort = () => aborted.reject(signal.reason)
  signal.addEventListener('abort', onAbort, { once: true })
  try {
    return await Promise.race([promise, aborted.promise])
  } finally {
    signal.removeEventListener('abort', onAbort)
  }
}

/** The value, or `undefined` when it takes longer than `ms`. A rejection that comes too late is dropped. */
export async function within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
  promise.catch(() => {})
  const ended = new AbortController()
  const late = wait(ms, ended.signal).then(
    () => undefined,
    () => undefined,
  )
  try {
    return await Promise.race([promise, late])
  } finally {
    ended.abort()
  }
}
