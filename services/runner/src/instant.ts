/**
 * A moment by two clocks: the monotonic one, the same in all threads, which does not count a machine's sleep, and
 * the wall clock, which does. Whichever says that more time has passed is believed.
 */
export type Instant = { readonly monotonicMs: number; readonly wallMs: number }

/** Now, by both clocks. */
export function now(): Instant {
  return { monotonicMs: Number(process.hrtime.bigint() / 1000n) / 1000, wallMs: Date.now() }
}

/** Milliseconds since then, never less than either clock says. */
export function elapsedMs(since: Instant, at: Instant = now()): number {
  return Math.max(at.monotonicMs - since.monotonicMs, at.wallMs - since.wallMs)
}
