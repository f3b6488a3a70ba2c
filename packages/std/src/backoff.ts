/**
 * Full-jitter exponential backoff: between half and all of `baseMs · 2^attempt`, at most `capMs`.
 * @param attempt 0 for the first repeat
 */
export function backoffMs(
  attempt: number,
  { baseMs, capMs, random = Math.random }: { baseMs: number; capMs: number; random?: () => number },
): number {
  const ceiling = Math.min(capMs, baseMs * 2 ** Math.min(attempt, 30))
  return Math.round(ceiling / 2 + (random() * ceiling) / 2)
}
