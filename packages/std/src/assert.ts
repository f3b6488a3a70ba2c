/** A bug: what the code believed is not so. Nobody handles it; the process ends and the lease takes care. */
export class InvariantError extends Error {
  override readonly name = 'InvariantError'
}

/** Crashes when `condition` is false. `message` says what was expected. */
export function invariant(condition: unknown, message: string): asserts condition {
  if (!condition) throw new InvariantError(message)
}

/** Marks the branch that the type checker proves unreachable. */
export function assertNever(value: never): never {
  throw new InvariantError(`unexpected value: ${JSON.stringify(value)}`)
}
