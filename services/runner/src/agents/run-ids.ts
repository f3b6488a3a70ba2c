import type { AgentRun } from './agent.ts'

export type RunIds = {
  /** The given id if no message has it yet, else a new one; it is taken from now on. */
  message(wanted: string): string
  /** The same for a tool call. */
  call(wanted: string): string
  /** For a call without a message of its own: its id is free as both, since it names both. */
  callAndMessage(wanted: string): string
  /** A subagent's handle; never kept in a later attempt, because readers saw it end. */
  subagent(wanted: string): string
  mint(): string
  /** Ids of messages that were there before this attempt. */
  readonly history: ReadonlySet<string>
}

/** What an index can hold in any alphabet. */
const ID_CHARS_MAX = 256

/** Which ids of an upstream may stand in the log: those that this conversation has never seen. */
export function createRunIds(
  run: Pick<AgentRun, 'runId' | 'epoch' | 'usedIds' | 'history'>,
): RunIds {
  const history = new Set(run.history.map((message) => message.id))
  const pastCalls = run.history.flatMap((message) =>
    message.role === 'assistant' ? (message.toolCalls ?? []).map((call) => call.id) : [],
  )
  const before = new Set([...run.usedIds, ...history, ...pastCalls])
  const messages = new Set<string>()
  const calls = new Set<string>()
  const subagents = new Set<string>()
  let minted = 0

  const mint = () => {
    minted += 1
    return `${run.runId}.${run.epoch}.m${minted}`
  }
  function take(wanted: string, ...spaces: Set<string>[]): string {
    const isFree = (id: string) => !before.has(id) && !spaces.some((space) => space.has(id))
    let id = wanted
    while (id === '' || id.length > ID_CHARS_MAX || !isFree(id)) id = mint()
    for (const space of spaces) space.add(id)
    return id
  }

  return {
    history,
    mint,
    message: (wanted) => take(wanted, messages),
    call: (wanted) => take(wanted, calls),
    callAndMessage: (wanted) => take(wanted, calls, messages),
    subagent: (wanted) => take(run.epoch > 1 ? '' : wanted, subagents),
  }
}
