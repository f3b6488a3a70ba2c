import { asError, within } from '@holdfast/std'

/** Anything with an end: what `using` and `await using` take. */
export type Resource = AsyncDisposable | Disposable

/** Ends one resource. */
export type Disposer = () => unknown

/** How a resource is ended; an asynchronous way is preferred. */
export function disposerOf(resource: Resource): Disposer {
  if (Symbol.asyncDispose in resource) return () => resource[Symbol.asyncDispose]()
  return () => resource[Symbol.dispose]()
}

/**
 * Ends all, the latest first; each has its time, and one that fails or hangs does not keep the
 * others. Empties the list.
 * @returns what failed
 */
export async function disposeAll(
  disposers: Disposer[],
  disposeMs: number,
  onStuck: () => void,
): Promise<Error[]> {
  const failures: Error[] = []
  for (let dispose = disposers.pop(); dispose; dispose = disposers.pop()) {
    try {
      if (!(await inTime(dispose, disposeMs))) onStuck()
    } catch (error) {
      failures.push(asError(error))
    }
  }
  return failures
}

/** False: it took longer than `ms`; what it says later is nobody's. */
export async function inTime(work: () => unknown, ms: number): Promise<boolean> {
  const working = Promise.resolve(work()).then(() => true)
  return (await within(ms, working)) ?? false
}
