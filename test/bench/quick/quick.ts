import { openServer } from '../server.ts'
import { short } from '../statistics.ts'
import type { Check } from './check.ts'
import { groupFlush } from './group-flush.ts'
import { idleQueue } from './idle-queue.ts'
import { idleTail } from './idle-tail.ts'
import { wakeupCommits } from './wakeup-commits.ts'

/** Ratios that tell of a mistake on any machine, however busy; true if all hold. */
export async function quick(say: (line: string) => void): Promise<boolean> {
  await using server = await openServer()
  const checks: Check[] = []
  for (const check of [groupFlush, wakeupCommits, idleTail, idleQueue])
    checks.push(...(await check(server)))
  for (const { holds, promise, value, unit } of checks) {
    say(`${holds ? 'holds' : 'BROKEN'}: ${promise}; measured ${short(value)}${unit}`)
  }
  return checks.every(({ holds }) => holds)
}
