import { wait } from '@holdfast/std'

const EVERY_MS = 25

/**
 * Asks until the answer is a value, and gives it; for what nobody announces. Fails with `what` after `limitMs`.
 */
export async function eventually<T>(
  what: string,
  ask: () => Promise<T | undefined | null | false>,
  limitMs = 20_000,
): Promise<T> {
  const late = AbortSignal.timeout(limitMs)
  while (!late.aborted) {
    const answer = await ask()
    if (answer !== undefined && answer !== null && answer !== false) return answer
    await wait(EVERY_MS, late).catch((reason: unknown) => {
      if (!late.aborted) throw reason
    })
  }
  throw new Error(`not within ${limitMs} ms: ${what}`)
}
