// Goal: I2, only the database's clock judges leases. Method: runners whose own clock is ten minutes ahead or behind,
// beside one that is right; the lease is three seconds, so ten minutes would outlive or kill any of them.
import { expect, test } from 'vitest'
import { readLog, send } from '../support/api.ts'
import { type Holdfast, type Runner, startHoldfast } from '../support/holdfast.ts'
import { outcomes, ownerOf, readRun, until } from './observe.ts'

const SKEW_MS = 600_000
const PRELOAD = new URL('../support/skewed-clock.ts', import.meta.url)

for (const [where, skewMs] of [
  ['ahead', SKEW_MS],
  ['behind', -SKEW_MS],
] as const) {
  test(`I2: a runner whose clock is ten minutes ${where} takes over whom a lease has left, and nobody else`, async () => {
    await using holdfast = await startHoldfast({ env: { LEASE_SECONDS: '3' } })
    const living = await send(holdfast.url, '/slow 4 a story')
    const right = await ownerOf(holdfast, living.runId)
    const skewed = await startSkewed(holdfast, skewMs)
    await readLog(holdfast.url, living.runId)
    expect((await readRun(holdfast.url, living.runId)).attempts).toHaveLength(1)

    const lost = await ownedBy(holdfast, right)
    right.kill('SIGKILL')
    await right.exited
    const log = await readLog(holdfast.url, lost)
    expect(log.at(-1)?.event).toMatchObject({ type: 'RUN_FINISHED', outcome: { type: 'success' } })
    const run = await readRun(holdfast.url, lost)
    expect(outcomes(run)).toEqual(['lost', 'succeeded'])
    expect(run.attempts.at(-1)?.runner).toBe(skewed.bootId)
  })

  test(`I2: a runner whose clock is ten minutes ${where} keeps what a right one could take over`, async () => {
    await using holdfast = await startHoldfast({ runners: 0, env: { LEASE_SECONDS: '3' } })
    const skewed = await startSkewed(holdfast, skewMs)
    const { runId } = await send(holdfast.url, '/slow 4 a story')
    await ownerOf(holdfast, runId)
    await holdfast.startRunner()
    await readLog(holdfast.url, runId)
    const run = await readRun(holdfast.url, runId)
    expect(outcomes(run)).toEqual(['succeeded'])
    expect(run.attempts[0]?.runner).toBe(skewed.bootId)
  })
}

/** Its own log tells by how much it is wrong. */
async function startSkewed(holdfast: Holdfast, skewMs: number): Promise<Runner> {
  const runner = await holdfast.startRunner({
    NODE_OPTIONS: `--import=${PRELOAD.href}`,
    CLOCK_SKEW_MS: `${skewMs}`,
  })
  const line = await until('a line of its log', () => /^.+(?=\n)/.exec(runner.log())?.[0])
  const { time }: { time: number } = JSON.parse(line)
  expect(Math.abs(time - Date.now() - skewMs)).toBeLessThan(60_000)
  return runner
}

/** A run that `runner` executes; the others are given theirs as well. */
async function ownedBy(holdfast: Holdfast, runner: Runner): Promise<string> {
  for (;;) {
    const { runId } = await send(holdfast.url, '/slow 4 a story')
    if ((await ownerOf(holdfast, runId)).bootId === runner.bootId) return runId
  }
}
