import { emptyFold, endingOf } from '@holdfast/protocol'
import { asError } from '@holdfast/std'
import { type Claimed, finishRun, newId } from '@holdfast/store'
import type { ExecuteDeps } from './execute-deps.ts'
import { leaveForRecovery, settle } from './finish.ts'

/**
 * Ends a run of which nobody can read what it holds, by what its claim alone tells: otherwise it would be claimed for
 * ending for ever, and its conversation with it. Its log keeps what was said; no message of it is stored. Tried once:
 * the sweep finds it again.
 */
export async function endUnread(deps: ExecuteDeps, claimed: Claimed): Promise<void> {
  const ending = endingOf({
    fold: emptyFold(),
    cause: { kind: 'error', code: 'internal' },
    threadId: '',
    runId: '',
    storedIds: new Set(),
    frontEndTools: new Set(),
    openCalls: [],
    followed: false,
    mintId: () => newId(deps.store),
  })
  try {
    const { lease, lastSequence } = claimed
    await settle(
      deps,
      { claimed },
      await finishRun(deps.store, lease, lastSequence, () => ending),
      0,
    )
  } catch (error) {
    leaveForRecovery(deps, { claimed }, asError(error))
  }
}
