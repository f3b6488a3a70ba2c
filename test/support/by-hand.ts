import { randomUUID } from 'node:crypto'
import { type AgUiEvent, type EndCause, emptyFold, endingOf, foldEvents } from '@holdfast/protocol'
import {
  type AgentRecord,
  type ArtifactPointer,
  appendEvents,
  type Claimed,
  type CreateRun,
  claimQueued,
  createRun,
  type Finished,
  finishRun,
  type Lease,
  newId,
  type Principal,
  readEvents,
  registerRunner,
  type Store,
} from '@holdfast/store'

export const ADA: Principal = { tenantId: 'acme', userId: 'ada', role: 'user' }

const LIMITS = {
  maxAttempts: 3,
  onLost: 'restart',
  effects: 'none',
  deadlineMs: 600_000,
  maxQueueMs: 600_000,
  history: 'all',
} as const

/** Makes agents known as a runner's start does, without a runner. The first is the default one. */
export async function recordAgents(
  store: Store,
  names: readonly string[] = ['demo'],
  limits: Partial<AgentRecord['limits']> = {},
): Promise<void> {
  const bootId = randomUUID()
  await registerRunner(
    store,
    { bootId, name: 'hand', pid: 1, agents: names, capacity: 1, metricsUrl: null },
    names.map((name, at) => ({
      name,
      type: 'demo',
      isDefault: at === 0,
      limits: { ...LIMITS, ...limits },
    })),
  )
}

/** A turn that must be accepted; by default Ada's, in a conversation of its own. */
export async function accept(store: Store, more: Partial<CreateRun> = {}, principal = ADA) {
  const request = { clientTurnId: randomUUID(), message: 'hello', onActive: 'enqueue', ...more }
  const outcome = await createRun(store, principal, request as CreateRun)
  if (outcome.kind !== 'created') throw new Error(`the turn was answered ${outcome.kind}`)
  return outcome.run
}

/** Claims what is due, as a runner of its own would. */
export function claim(
  store: Store,
  options: { owner?: string; leaseMs?: number; limit?: number } = {},
): Promise<Claimed[]> {
  const { owner = randomUUID(), leaseMs = 60_000, limit = 1 } = options
  return claimQueued(store, { owner, agents: ['demo'], leaseMs, limit })
}

/** Claims the one run that is due. */
export async function claimOne(store: Store, leaseMs?: number): Promise<Claimed> {
  const [claimed] = await claim(store, leaseMs === undefined ? {} : { leaseMs })
  if (!claimed) throw new Error('no run is due')
  return claimed
}

/** Puts events behind `base`; true when the fence let them through. */
export async function append(
  store: Store,
  lease: Lease,
  base: number,
  events: readonly object[],
): Promise<boolean> {
  const lines = events.map((event) => ({
    type: 'type' in event ? String(event.type) : '',
    json: JSON.stringify(event),
  }))
  return (await appendEvents(store, [{ lease, base, events: lines }])).length === 1
}

/** An assistant's message of so many words, without its end unless `ended`. */
export function message(id: string, words: number, ended = false): object[] {
  return [
    { type: 'TEXT_MESSAGE_START', messageId: id, role: 'assistant' },
    ...Array.from({ length: words }, (_, at) => ({
      type: 'TEXT_MESSAGE_CONTENT',
      messageId: id,
      delta: `w${at} `,
    })),
    ...(ended ? [{ type: 'TEXT_MESSAGE_END', messageId: id }] : []),
  ]
}

/** Ends a run by what its log holds, as a runner would. */
export async function finish(
  store: Store,
  lease: Lease,
  cause: EndCause = { kind: 'success' },
  lastSequence?: number,
  artifacts: readonly ArtifactPointer[] = [],
): Promise<Finished> {
  const log = await logOf(store, lease.runId)
  const fold = foldEvents(emptyFold(), log)
  const said = fold.messages.filter(({ role }) => role === 'user').map(({ id }) => id)
  const decide = ({ cancelRequested, followed }: { cancelRequested: boolean; followed: boolean }) =>
    endingOf({
      fold,
      cause: cancelRequested ? { kind: 'cancel' } : cause,
      threadId: lease.conversationId,
      runId: lease.runId,
      storedIds: new Set(said),
      frontEndTools: new Set(),
      openCalls: [],
      followed,
      mintId: () => newId(store),
    })
  return await finishRun(store, lease, lastSequence ?? log.length, decide, artifacts)
}

/** The whole log of a run, straight from the store. */
export async function logOf(store: Store, runId: string): Promise<AgUiEvent[]> {
  const log: AgUiEvent[] = []
  for (;;) {
    const page = await readEvents(store, runId, log.length, 500)
    if (page.kind !== 'events') throw new Error('the log is pruned')
    if (page.events.length === 0) return log
    log.push(...page.events.map(({ json }) => JSON.parse(json) as AgUiEvent))
  }
}
