/** Reproducible chance. */
export type Random = {
  /** In [0, 1). */
  fraction(): number
  chance(probability: number): boolean
  /** From `min` to `max`, both included. */
  whole(min: number, max: number): number
  pick<T>(list: readonly T[]): T
}

/** Prints its seed, so that a failure can be seen again with `HOLDFAST_TEST_SEED`. */
export function seeded(name: string): Random {
  const given = Number(process.env['HOLDFAST_TEST_SEED'])
  const seed = Number.isInteger(given) && given > 0 ? given : Math.trunc(Math.random() * 2 ** 31)
  process.stdout.write(`${name}: HOLDFAST_TEST_SEED=${seed}\n`)
  return randomFrom(seed)
}

/** The same draws from the same seed. */
export function randomFrom(seed: number): Random {
  let state = seed

  // mulberry32
  function fraction() {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  const whole = (min: number, max: number) => min + Math.floor(fraction() * (max - min + 1))
  return {
    fraction,
    chance: (probability) => fraction() < probability,
    whole,
    pick(list) {
      const [picked] = list.slice(whole(0, list.length - 1))
      if (picked === undefined) throw new Error('nothing to pick from')
      return picked
    },
  }
}
