/** Runs at most `width` works at a time; the others wait in order of arrival. */
export type Gate = <T>(work: () => Promise<T>) => Promise<T>

export function gate(width: number): Gate {
  let free = width
  const waiting: (() => void)[] = []

  return async (work) => {
    if (free > 0) free -= 1
    else await new Promise<void>((admit) => waiting.push(admit))
    try {
      return await work()
    } finally {
      const next = waiting.shift()
      if (next) next()
      else free += 1
    }
  }
}
