import { setTimeout as sleep } from 'node:timers/promises'
import { request } from '../support/api.ts'
import type { Checked } from '../support/checker.ts'
import type { Holdfast, Runner } from '../support/holdfast.ts'

const UNTIL_MS = 20_000

/** Asks again and again until there is something; fails with what was being waited for. */
export async function until<T>(
  what: string,
  ask: () => Promise<T | false | null | undefined> | T | false | null | undefined,
): Promise<T> {
  const givenUpAt = performance.now() + UNTIL_MS
  for (;;) {
    const found = await ask()
    if (found !== false && found !== null && found !== undefined) return found
    if (performance.now() > givenUpAt) throw new Error(`it never came: ${what}`)
    await sleep(15)
  }
}

export async function readRun(url: string, runId: string): Promise<Checked['run']> {
  return (await request(`${url}/runs/${runId}`)).body as unknown as Checked['run']
}

/** The runner that executes the run, as soon as there is one, in this attempt or a later one. */
export async function ownerOf(holdfast: Holdfast, runId: string, epoch = 1): Promise<Runner> {
  const bootId = await until(`a runner claims ${runId} under epoch ${epoch}`, async () => {
    const { attempts } = await readRun(holdfast.url, runId)
    return attempts.find((attempt) => attempt.epoch >= epoch)?.runner
  })
  const owner = holdfast.runners.find((runner) => runner.bootId === bootId)
  if (!owner) throw new Error(`runner ${bootId} is none of ours`)
  return owner
}

/** The runner does nothing, and is told nothing, while `body` runs. */
export async function frozen(runner: Runner, body: () => Promise<void>): Promise<void> {
  runner.kill('SIGSTOP')
  try {
    await body()
  } finally {
    runner.kill('SIGCONT')
  }
}

export async function cancel(url: string, runId: string): Promise<number> {
  return (await request(`${url}/runs/${runId}/cancel`, { json: {} })).status
}

/** Attempts as `outcome`s, oldest first. */
export function outcomes(run: Checked['run']): (string | null)[] {
  return run.attempts.map((attempt) => attempt.outcome)
}
