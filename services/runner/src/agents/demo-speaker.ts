import { type AgUiEvent, EventType } from '@holdfast/protocol'
import { wait } from '@holdfast/std'
import type { AgentRun } from './agent.ts'

export type Speaker = {
  id(kind: string): string
  emit(...events: AgUiEvent[]): Promise<void>
  /** A text message, word by word. */
  say(text: string): Promise<void>
  words(text: string, say: (delta: string) => AgUiEvent): Promise<void>
}

/** Says a run's words at a pace; `id` numbers what it makes within the attempt. */
export function createSpeaker(run: AgentRun, pauseMs: number): Speaker {
  const counts = new Map<string, number>()
  const emit = (...events: AgUiEvent[]) => run.emit(events)
  const id = (kind: string) => {
    const count = (counts.get(kind) ?? 0) + 1
    counts.set(kind, count)
    return `${run.runId}.${run.epoch}.${kind}${count}`
  }
  async function words(text: string, say: (delta: string) => AgUiEvent) {
    for (const word of text.match(/\s*\S+\s*$|\s*\S+/g) ?? []) {
      await wait(pauseMs, run.signal)
      await emit(say(word))
    }
  }
  return {
    id,
    emit,
    words,
    async say(text) {
      const messageId = id('m')
      await emit({ type: EventType.TEXT_MESSAGE_START, messageId, role: 'assistant' })
      await words(text, (delta) => ({ type: EventType.TEXT_MESSAGE_CONTENT, messageId, delta }))
      await emit({ type: EventType.TEXT_MESSAGE_END, messageId })
    },
  }
}
