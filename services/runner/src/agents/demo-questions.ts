import { EventType, type Interrupt } from '@holdfast/protocol'
import type { AgentResult, AgentRun } from './agent.ts'
import type { DemoCommands } from './demo-answer.ts'
import type { Speaker } from './demo-speaker.ts'

/** What the demo agent cannot answer itself: a question, a consent, a tool of the front end. `null`: nothing. */
export async function askOutside(
  speaker: Speaker,
  run: AgentRun,
  { ask, approve, call }: DemoCommands,
): Promise<AgentResult | null> {
  const interrupts: Interrupt[] = []
  if (ask !== undefined) {
    interrupts.push({ id: speaker.id('i'), reason: 'input_required', message: ask })
  }
  if (approve !== undefined) {
    const toolCallId = await callOnly(speaker, 'demo_act', JSON.stringify({ what: approve }))
    const message = `May I act on ${approve}?`
    interrupts.push({ id: speaker.id('i'), reason: 'tool_call', message, toolCallId })
  }
  if (call && run.tools.some((tool) => tool.name === call.name)) {
    await callOnly(speaker, call.name, call.argumentsJson)
    if (interrupts.length === 0) return { outcome: 'success' }
  }
  return interrupts.length > 0 ? { outcome: 'interrupt', interrupts } : null
}

/** Goes on after answers: gives its open calls their results, and says what it was told. */
export async function goOn(speaker: Speaker, run: AgentRun): Promise<AgentResult> {
  for (const { toolCallId } of run.openCalls) {
    const content = JSON.stringify({ done: true })
    const messageId = speaker.id('m')
    await speaker.emit({
      type: EventType.TOOL_CALL_RESULT,
      messageId,
      toolCallId,
      content,
      role: 'tool',
    })
  }
  await speaker.say(told(run).join(' '))
  return { outcome: 'success' }
}

function told({ resume, messages, openCalls }: AgentRun): string[] {
  const answers = resume.map(({ status, payload }) =>
    status === 'cancelled'
      ? 'You did not answer.'
      : `You answered ${JSON.stringify(payload ?? null)}.`,
  )
  const last = messages.findLastIndex((message) => message.role !== 'tool')
  const open = new Set(openCalls.map(({ toolCallId }) => toolCallId))
  const results = messages
    .slice(last + 1)
    .flatMap((message) =>
      message.role === 'tool' && !open.has(message.toolCallId)
        ? [`Your page's tool said ${JSON.stringify(message.content)}.`]
        : [],
    )
  return [...answers, ...results]
}

async function callOnly({ id, emit }: Speaker, toolCallName: string, args: string) {
  const toolCallId = id('t')
  await emit(
    { type: EventType.TOOL_CALL_START, toolCallId, toolCallName, parentMessageId: id('m') },
    { type: EventType.TOOL_CALL_ARGS, toolCallId, delta: args },
    { type: EventType.TOOL_CALL_END, toolCallId },
  )
  return toolCallId
}
