/**
 * Something that code in a scope did and should not have done. `swallowed`: it was cancelled, went
 * on, and ended as if nothing had been; `stuck`: it did not end within the bound after a cancel and
 * is not waited for any more; `dispose_stuck`: the same of a resource's disposal; `not_awaited`: a
 * scope ended while something in it, which nobody waited for, was still at work.
 */
export type Report = {
  readonly kind: 'swallowed' | 'stuck' | 'dispose_stuck' | 'not_awaited'
  /** Names from the outermost scope to the one that it is about: `scope > group > weather`. */
  readonly scope: string
  /** How long it went on, in milliseconds. */
  readonly ms: number
}

/** For those who do not listen: a warning of the process. */
export function warn({ kind, scope, ms }: Report): void {
  process.emitWarning(`${scope}: ${SAYS[kind]} (${Math.round(ms)} ms)`, 'ScopeWarning')
}

const SAYS: Readonly<Record<Report['kind'], string>> = {
  swallowed: 'it was cancelled, went on, and ended as if it had not been',
  stuck: 'it does not stop although it was cancelled, and is left behind',
  dispose_stuck: 'a resource is not disposed of in time, and is left behind',
  not_awaited: 'it was still at work when its scope ended, and is cancelled',
}
