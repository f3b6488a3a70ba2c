const SECOND = 1000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

/** As Standard Webhooks suggest, but closer together at first: a receiver that restarts is back in a minute. */
const DELAYS_MS = [
  5 * SECOND,
  30 * SECOND,
  2 * MINUTE,
  10 * MINUTE,
  30 * MINUTE,
  2 * HOUR,
  5 * HOUR,
  10 * HOUR,
  14 * HOUR,
  20 * HOUR,
] as const

/** A receiver may ask for more time than that, but not for ever. */
const RETRY_AFTER_MS_MAX = HOUR

/**
 * How long after the failure of attempt `step` (from 1) the next one comes, ±20 %; at least what the receiver asked
 * for. `null`: it was the last one, about two days after the first.
 */
export function retryDelayMs(
  step: number,
  retryAfterMs: number | undefined,
  random: () => number = Math.random,
): number | null {
  const delayMs = DELAYS_MS[step - 1]
  if (delayMs === undefined) return null
  const jittered = delayMs * (0.8 + random() * 0.4)
  return Math.round(Math.max(jittered, Math.min(retryAfterMs ?? 0, RETRY_AFTER_MS_MAX)))
}
