import type { ArtifactStore } from '@holdfast/artifacts'
import { type AgUiEvent, type Fold, foldEvents, LIMITS } from '@holdfast/protocol'
import { type AttemptInput, type Claimed, type Store, saveFold } from '@holdfast/store'
import { type AbortCause, AttemptAborted } from './abort.ts'
import { AgentFailure } from './agents/agent.ts'
import type { RunLog } from './append-queue.ts'
import type { Appender } from './appender.ts'
import { type AttemptArtifacts, attemptArtifacts } from './attempt-artifacts.ts'
import { type HeldLease, type LeaseKeeper } from './lease-keeper.ts'
import type { StaleLedger } from './stale-ledger.ts'

/** What one attempt holds while it lives: the lease, the log and what the log amounts to. */
export type Attempt = {
  readonly claimed: Claimed
  readonly input: AttemptInput
  readonly signal: AbortSignal
  /** Aborts when the right is lost, also after `signal` was aborted for another cause. */
  readonly lost: AbortSignal
  readonly held: HeldLease
  readonly log: RunLog
  readonly artifacts: AttemptArtifacts
  /** The fold of what is durable. */
  readonly fold: Fold
  /** Something of this attempt's own can be seen by readers, or soon will be. */
  readonly visible: boolean
  /** When it was aborted (`performance.now()`), or null. */
  readonly abortedAtMs: number | null
  abort(cause: AbortCause): void
  /** Appends; a conversation or event over its limit fails the attempt and appends nothing. */
  emit(events: readonly AgUiEvent[]): Promise<void>
  /**
   * Appends what the attempt itself has to say first, and waits until that is durable: who was taken for dead between
   * the claim and this moment is told so here, before an agent asks anybody for anything.
   */
  begin(events: readonly AgUiEvent[]): Promise<void>
  /** Saves the fold if it has grown enough to be worth a write. */
  save(): Promise<void>
  close(): void
}

const SAVE_EVERY_EVENTS = 100
const SAVE_EVERY_BYTES = 256 << 10

/** What becomes part of the stored messages. */
const ADDS_TO_MESSAGES: ReadonlySet<string> = new Set([
  'TEXT_MESSAGE_CONTENT',
  'TOOL_CALL_ARGS',
  'TOOL_CALL_RESULT',
  'REASONING_MESSAGE_CONTENT',
  'ACTIVITY_SNAPSHOT',
  'ACTIVITY_DELTA',
])

/** Joins lease, log and abort of an attempt. From here on whoever loses the lease loses the log too. */
export function openAttempt(options: {
  store: Store
  artifactStore: ArtifactStore
  keeper: LeaseKeeper
  appender: Appender
  stale: Pick<StaleLedger, 'refused'>
  claimed: Claimed
  input: AttemptInput
  held: (on: { cancel(): void; lost(): void }) => HeldLease
}): Attempt {
  const { claimed, input, store } = options
  const controller = new AbortController()
  const right = new AbortController()
  const stored = new Set(input.history.map(({ message }) => message.id))
  let fold = own(input.fold)
  let savedSequence = input.sequence
  let abortedAtMs: number | null = null
  let visible = false
  let bytes = input.conversationBytes + bytesOfMessages(fold)
  let unsavedBytes = 0

  function abort(cause: AbortCause) {
    if (cause === 'lease_lost') right.abort(new AttemptAborted(cause))
    if (controller.signal.aborted) return
    abortedAtMs = performance.now()
    controller.abort(new AttemptAborted(cause))
  }

  // Turns before this one are stored already; a snapshot in the log brings them along.
  function own(whole: Fold): Fold {
    const messages = whole.messages.filter((message) => !stored.has(message.id))
    return messages.length === whole.messages.length ? whole : { ...whole, messages }
  }

  function lose() {
    abort('lease_lost')
    log.close()
  }

  const log: RunLog = options.appender.open(claimed.lease, input.sequence, {
    committed(events) {
      fold = foldEvents(fold, events)
      if (events.some((event) => event.type === 'MESSAGES_SNAPSHOT')) fold = own(fold)
    },
    cancelRequested: () => abort('cancel'),
    lost: () => abort('lease_lost'),
    poisoned: (error) => controller.abort(error),
  })
  const held = options.held({ cancel: () => abort('cancel'), lost: lose })

  return {
    claimed,
    input,
    signal: controller.signal,
    lost: right.signal,
    held,
    log,
    artifacts: attemptArtifacts(options.artifactStore, claimed.lease, controller.signal),
    get fold() {
      return fold
    },
    get visible() {
      return visible
    },
    get abortedAtMs() {
      return abortedAtMs
    },
    abort,
    async begin(events) {
      // What is withdrawn does not count any more; what the agent goes on from does.
      if (events.some((event) => event.type === 'MESSAGES_SNAPSHOT'))
        bytes = input.conversationBytes
      await log.append(events)
      await log.settled()
    },
    async emit(events) {
      controller.signal.throwIfAborted()
      for (const event of events) {
        const size = bytesOf(event)
        // A snapshot is the whole conversation again; the rest adds to it.
        if (event.type === 'MESSAGES_SNAPSHOT') bytes = size
        else if (ADDS_TO_MESSAGES.has(event.type)) bytes += size
        unsavedBytes += size
        if (size > LIMITS.eventBytesMax || bytes > LIMITS.conversationBytesMax) {
          throw new AgentFailure('limit_exceeded', 'the conversation passed its size limit')
        }
      }
      if (events.length > 0) visible = true
      await log.append(events)
    },
    async save() {
      const sequence = log.sequence
      const grown =
        sequence - savedSequence >= SAVE_EVERY_EVENTS || unsavedBytes >= SAVE_EVERY_BYTES
      if (!grown || sequence === savedSequence || controller.signal.aborted) return
      savedSequence = sequence
      unsavedBytes = 0
      const saved = await saveFold(store, claimed.lease, sequence, fold)
      // Beside its own end this attempt finds the run over, and that is no loss; the ledger tells them apart.
      if (saved.kind === 'fenced') options.stale.refused(claimed.lease, 'fold')
    },
    close() {
      log.close()
      held.release()
    },
  }
}

function bytesOfMessages({ messages }: Fold): number {
  return messages.length === 0 ? 0 : Buffer.byteLength(JSON.stringify(messages))
}

function bytesOf(event: AgUiEvent): number {
  const { delta } = event as { delta?: unknown }
  return Buffer.byteLength(typeof delta === 'string' ? delta : JSON.stringify(event))
}
