import { backoffMs, HoldfastError, wait } from '@holdfast/std'
import type { Store } from '@holdfast/store'
import type { Logger } from 'pino'
import { AttemptAborted } from './abort.ts'
import type { Attempt } from './attempt.ts'
import type { FencedOperation, StaleLedger } from './stale-ledger.ts'

export type FencedWriteDeps = {
  readonly store: Store
  readonly stale: Pick<StaleLedger, 'refused'>
  readonly log: Logger
}

/**
 * A write of an attempt beside its log: sent until the database answers or the lease ends, also when the attempt is told
 * to stop, since what it records has happened. Sending it again must be harmless.
 * A refusal ends the attempt; it stands in the ledger, unless `landed` says that an earlier sending got through.
 */
export async function writeFenced<T extends { readonly kind: string }>(
  deps: FencedWriteDeps,
  attempt: Attempt,
  write: {
    readonly operation: FencedOperation
    send(): Promise<T | { readonly kind: 'fenced' }>
    /** Asked only after a reply was lost. */
    landed?(): Promise<boolean>
  },
): Promise<T> {
  for (let tries = 0; ; tries += 1) {
    try {
      const answer = await write.send()
      if (!isFenced(answer)) return answer
      if (tries === 0 || (write.landed && !(await write.landed()))) {
        deps.stale.refused(attempt.claimed.lease, write.operation)
      }
      break
    } catch (error) {
      if (!(error instanceof HoldfastError && error.kind === 'unavailable')) throw error
      deps.log.warn({ err: error, operation: write.operation, tries }, 'a write failed')
      if (attempt.held.leftMs() <= 0 || attempt.lost.aborted) break
      await wait(backoffMs(tries, { baseMs: 50, capMs: 1000 }))
    }
  }
  attempt.abort('lease_lost')
  throw new AttemptAborted('lease_lost')
}

function isFenced<T extends { readonly kind: string }>(
  answer: T | { readonly kind: 'fenced' },
): answer is { readonly kind: 'fenced' } {
  return answer.kind === 'fenced'
}
