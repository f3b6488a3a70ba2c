import { asError } from '@holdfast/std'
import { Cancelled } from './cancelled.ts'

/** The single failures in whatever was thrown, however groups have put them together. */
export function failuresOf(error: unknown): Error[] {
  return error instanceof AggregateError ? error.errors.flatMap(failuresOf) : [asError(error)]
}

/** Several failures as one thing to throw; a single one stays itself. */
export function together(failures: readonly Error[]): Error {
  const [first, second] = failures
  if (first && !second) return first
  const said = failures.map((failure) => failure.message).join('; ')
  return new AggregateError(failures, `${failures.length} failures: ${said}`)
}

/** Which failures, and what to do about them; made by `on`. */
export type FailureHandler = {
  matches(failure: Error): boolean
  handle(failures: readonly Error[]): void | Promise<void>
}

/**
 * A handler for `takeApart`: for all failures of a class, or for those that a guard accepts.
 * It is called once, with its whole share.
 */
export function on<E extends Error>(
  kind: (new (...given: never[]) => E) | ((failure: Error) => failure is E),
  handle: (failures: readonly E[]) => void | Promise<void>,
): FailureHandler {
  const isOne = (failure: Error): failure is E =>
    isClass(kind) ? failure instanceof kind : kind(failure)
  return { matches: isOne, handle: (failures) => handle(failures.filter(isOne)) }
}

/**
 * Gives each handler its share of what was thrown, in the given order; the first that matches has
 * it. What nobody took, and what a handler throws, is thrown on. A cancellation is never anybody's
 * share: it goes on upwards.
 *
 *     await takeApart(error, on(RateLimited, (all) => slowDown(all)), on(BadCity, apologise))
 */
export async function takeApart(error: unknown, ...handlers: FailureHandler[]): Promise<void> {
  const shares = new Map<FailureHandler, Error[]>()
  const rest: Error[] = []
  for (const failure of failuresOf(error)) {
    const taker =
      failure instanceof Cancelled ? undefined : handlers.find(({ matches }) => matches(failure))
    if (!taker) rest.push(failure)
    else shares.set(taker, [...(shares.get(taker) ?? []), failure])
  }
  for (const handler of handlers) {
    const share = shares.get(handler)
    if (!share) continue
    try {
      await handler.handle(share)
    } catch (again) {
      rest.push(...failuresOf(again))
    }
  }
  if (rest.length > 0) throw together(rest)
}

function isClass<E extends Error>(
  kind: (new (...given: never[]) => E) | ((failure: Error) => failure is E),
): kind is new (
  ...given: never[]
) => E {
  return kind.prototype instanceof Error || Object.is(kind, Error)
}
