import { interruption, type Run, type Scoped } from '@holdfast/agent-kit'
import { answerCall, argumentsOf, callTool, showCall, takeStep } from './call-tool.ts'
import { say } from './say.ts'
import { sharedState } from './shared-state.ts'
import type { Turn } from './turn.ts'

/** The run as its author's code sees it in one scope: whatever is begun through it is part of that scope. */
export function runContext(turn: Turn, scope: Scoped<Run>): Run {
  const { run } = turn
  return {
    ...scope,
    id: run.runId,
    conversationId: run.conversationId,
    attempt: run.epoch,
    principal: { tenant: run.tenantId, user: run.userId },
    messages: run.messages,
    history: run.history,
    tools: run.tools,
    context: run.context,
    forwardedProps: run.forwardedProps,
    resume: run.resume,
    openCalls: run.openCalls,
    saved: run.saved && { data: turn.savedData, current: run.saved.current },
    state: sharedState(turn, scope.signal),
    log: run.log,
    text: (content) => scope.part('text', (own) => say(turn, own, 'text', content)),
    reasoning: (content) => scope.part('reasoning', (own) => say(turn, own, 'reasoning', content)),
    tool: (name, args, work, options = {}) =>
      scope.part(name, (own) => callTool(turn, own, name, args, work, options)),
    call: (name, args) => scope.part(name, (own) => showCall(turn, own, name, argumentsOf(args))),
    answer: ({ toolCallId, name }, work, options = {}) =>
      scope.part(name, (own) => answerCall(turn, own, toolCallId, work, options)),
    step: (key, options, work) => scope.part(key, (own) => takeStep(turn, own, key, options, work)),
    async checkpoint(data) {
      scope.signal.throwIfAborted()
      await turn.checkpoint(data)
    },
    async artifact(name, options, body) {
      scope.signal.throwIfAborted()
      await run.artifact(name, options, body)
    },
    interrupt: (...asks) =>
      interruption(asks.map((ask) => ({ ...ask, id: ask.id ?? turn.mint('i') }))),
    usage(spent) {
      turn.usage.push(spent)
    },
  }
}
