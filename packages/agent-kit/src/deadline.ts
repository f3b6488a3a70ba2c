/** A limit in time: milliseconds from now, or an instant (a Date, or milliseconds since 1970). */
export type Limit = number | { readonly at: Date | number }

export type Deadline = {
  /** When it passes, by the wall clock. */
  readonly at: Date
  /** Milliseconds; 0 when it has passed. */
  leftMs(): number
  /**
   * Moves it, earlier or later.
   * @throws RangeError if it has passed already or the limit is not a time
   */
  reschedule(limit: Limit): void
}

/** A longer timer would fire at once. */
const TIMER_MS_MAX = 2 ** 31 - 1
/** So soon it is noticed that the wall clock was set, or that the machine slept. */
const WALL_LOOK_MS = 30_000

/**
 * Calls `passed` once, when the limit is reached; never before this function has returned. What is
 * relative counts on the monotonic clock, what is absolute on the wall clock.
 */
export function openDeadline(limit: Limit, passed: () => void): Deadline & { close(): void } {
  let clock = clockOf(limit)
  let timer: ReturnType<typeof setTimeout> | undefined
  let isOver = false

  function arm() {
    clearTimeout(timer)
    const leftMs = Math.max(0, clock.leftMs())
    if (leftMs === Number.POSITIVE_INFINITY) return
    timer = setTimeout(look, Math.min(leftMs, clock.sliceMs))
  }
  function look() {
    if (clock.leftMs() > 0) return arm()
    isOver = true
    passed()
  }

  arm()
  return {
    get at() {
      return new Date(Math.min(clock.at(), DATE_MAX))
    },
    leftMs: () => (isOver ? 0 : Math.max(0, clock.leftMs())),
    reschedule(next) {
      if (isOver) throw new RangeError('the deadline has passed; it cannot be moved any more')
      clock = clockOf(next)
      arm()
    },
    close: () => clearTimeout(timer),
  }
}

/** The last instant that a Date can hold. */
const DATE_MAX = 8.64e15

type Clock = { leftMs(): number; at(): number; sliceMs: number }

function clockOf(limit: Limit): Clock {
  if (typeof limit === 'number') {
    if (Number.isNaN(limit)) throw new RangeError('a limit must be a number of milliseconds')
    const end = performance.now() + limit
    const leftMs = () => end - performance.now()
    return { leftMs, at: () => Date.now() + leftMs(), sliceMs: TIMER_MS_MAX }
  }
  const end = Number(limit.at)
  if (Number.isNaN(end)) throw new RangeError('a limit must be a valid Date')
  return { leftMs: () => end - Date.now(), at: () => end, sliceMs: WALL_LOOK_MS }
}
