import { defaultApplyEvents, HttpAgent, verifyEvents } from '@ag-ui/client'
import type { RunAgentInput } from '@ag-ui/core'
import { from, lastValueFrom } from 'rxjs'
import { scan } from 'rxjs/operators'
import { vi } from 'vitest'
import type { AgUiEvent, Message } from '../event.ts'

export type Held = { messages: Message[]; state: unknown }

/**
 * What AG-UI's own client holds after `events`; rejects where its verifier does. Each
 * event is cloned by itself, as if it came over a wire, since the client changes what it gets.
 */
export async function clientHolds(
  events: readonly AgUiEvent[],
  before: Partial<Held> = {},
): Promise<Held> {
  const held: Held = { messages: before.messages ?? [], state: before.state ?? {} }
  const agent = new HttpAgent({ url: 'http://127.0.0.1/', initialMessages: held.messages })
  const input: RunAgentInput = {
    threadId: 't',
    runId: 'r',
    messages: [],
    tools: [],
    context: [],
    state: held.state,
  }
  const verified = from(events.map((event) => structuredClone(event))).pipe(verifyEvents())
  const mutations = defaultApplyEvents(input, verified, agent, [])
  // The client warns of every patch that does not fit, and many are made not to.
  const warnings = vi.spyOn(console, 'warn').mockImplementation(() => {})
  const last = lastValueFrom(
    mutations.pipe(
      scan((now, mutation) => {
        const next = { ...now }
        if (mutation.messages !== undefined) next.messages = mutation.messages
        if (mutation.state !== undefined) next.state = mutation.state
        return next
      }, held),
    ),
    { defaultValue: held },
  )
  return last.finally(() => warnings.mockRestore())
}
