import { AgentFailure } from '../agent.ts'

export type Watchdog = {
  /** A byte came. */
  byte(): void
  /** The model got on. */
  progress(): void
  /** Not waiting for the upstream (but for our own log): no time passes. */
  pause(): void
  resume(): void
  stop(): void
}

/**
 * Watches an upstream for silence: no byte for `idleTimeoutMs`, no progress for
 * `progressTimeoutMs`. `onSilence` is called once.
 */
export function createWatchdog(
  limits: { idleTimeoutMs: number; progressTimeoutMs: number },
  onSilence: (failure: AgentFailure) => void,
): Watchdog {
  let idleLeftMs = limits.idleTimeoutMs
  let progressLeftMs = limits.progressTimeoutMs
  let since = performance.now()
  let timer: NodeJS.Timeout | undefined

  function settle() {
    if (timer === undefined) return
    clearTimeout(timer)
    timer = undefined
    const passedMs = performance.now() - since
    idleLeftMs -= passedMs
    progressLeftMs -= passedMs
  }
  function arm() {
    since = performance.now()
    // Node fires a timer beyond 2^31 ms at once, so long limits are watched in slices.
    const waitMs = Math.min(Math.max(1, Math.ceil(Math.min(idleLeftMs, progressLeftMs))), 2 ** 30)
    timer = setTimeout(look, waitMs)
  }
  function look() {
    settle()
    if (idleLeftMs <= 0) {
      onSilence(new AgentFailure('upstream_timeout', 'the upstream sent nothing for too long'))
    } else if (progressLeftMs <= 0) {
      onSilence(new AgentFailure('stalled', 'the upstream made no progress for too long'))
    } else arm()
  }

  arm()
  return {
    byte() {
      settle()
      idleLeftMs = limits.idleTimeoutMs
      arm()
    },
    progress() {
      settle()
      progressLeftMs = limits.progressTimeoutMs
      arm()
    },
    pause: settle,
    resume() {
      if (timer === undefined) arm()
    },
    stop: settle,
  }
}
