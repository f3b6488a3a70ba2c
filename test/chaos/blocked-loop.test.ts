// Goal: a main loop that is stuck for a moment loses no lease, and one that is stuck for good does not keep a run.
// Method: a process that holds a lease through the real keeper and blocks itself.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { send } from '../support/api.ts'
import { checkRun } from '../support/checker.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { frozen, outcomes, readRun } from './observe.ts'

const LEASE_MS = 3000
const SCRIPT = fileURLToPath(
  new URL('../../services/runner/src/testing/hold-and-block.ts', import.meta.url),
)

/** Holds the run that `runId` resolves to. */
function startHolder(holdfast: Holdfast) {
  const child = spawn(
    process.execPath,
    ['--conditions=holdfast-source', SCRIPT, holdfast.databaseUrl, `${LEASE_MS}`],
    { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] },
  )
  async function said() {
    const [message] = await once(child, 'message')
    return message as { runId: string; lost: boolean; leftMs: number }
  }
  return {
    said,
    exited: once(child, 'exit').then(([code, signal]) => ({ code, signal })),
    block: (blockMs: number) => child.send({ blockMs }),
    [Symbol.dispose]: () => void child.kill('SIGKILL'),
  }
}

test('a main loop that is stuck loses its lease only past the bound, and then the process with it', async () => {
  await using holdfast = await startHoldfast({ env: { LEASE_SECONDS: `${LEASE_MS / 1000}` } })
  const [runner] = holdfast.runners
  if (!runner) throw new Error('there is a runner')
  using holder = startHolder(holdfast)
  let runId = ''
  // The runner must not be faster.
  await frozen(runner, async () => {
    runId = (await send(holdfast.url, 'hold me')).runId
    expect((await holder.said()).runId).toBe(runId)
  })
  // Several times, each shorter than the bound and together longer than the lease.
  for (let block = 0; block < 3; block += 1) {
    holder.block(1300)
    const { lost, leftMs } = await holder.said()
    expect(lost).toBe(false)
    expect(leftMs).toBeGreaterThan(0)
  }
  expect(await readRun(holdfast.url, runId)).toMatchObject({ state: 'running', epoch: 1 })

  const blockedAt = performance.now()
  holder.block(60_000)
  expect(await holder.exited).toEqual({ code: null, signal: 'SIGKILL' })
  const tookMs = performance.now() - blockedAt
  // It went on renewing for two seconds; the lease of the last renewal ends at the latest then and a lease later.
  expect(tookMs).toBeGreaterThan(2000)
  expect(tookMs).toBeLessThan(2000 + LEASE_MS + 4000)
  const { run } = await checkRun(holdfast.url, runId)
  expect(outcomes(run)).toEqual(['lost', 'succeeded'])
  expect(run.attempts[1]?.runner).toBe(runner.bootId)
})
