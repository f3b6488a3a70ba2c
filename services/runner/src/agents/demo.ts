import { EventType } from '@holdfast/protocol'
import { type Agent, AgentFailure, type AgentRun } from './agent.ts'
import { answerTo, DEMO_FILE, type DemoCommands, demoCommands, longText } from './demo-answer.ts'
import { askOutside, goOn } from './demo-questions.ts'
import { createSpeaker, type Speaker } from './demo-speaker.ts'

const WORD_MS = 15

/** An agent without a model: deterministic, offline, and able to show all that a run can do. */
export function createDemoAgent(): Agent {
  return {
    type: 'demo',
    async run(run) {
      const commands = demoCommands(run.messages)
      const speaker = createSpeaker(run, wordMs(commands, run))
      if (run.messages.at(-1)?.role !== 'user') return await goOn(speaker, run)
      if (commands.think) await think(speaker)
      if (commands.state) await showState(speaker, run)
      if (commands.activity) await showActivity(speaker)
      if (commands.tool !== undefined) await callTool(speaker, run, commands.tool)
      if (commands.fileWords !== undefined) {
        const words = longText(commands.fileWords)
        await run.artifact(DEMO_FILE, { mediaType: 'text/plain; charset=utf-8' }, words)
      }
      await speaker.say(answerTo(run, commands))
      const asked = await askOutside(speaker, run, commands)
      if (asked) return asked
      if (commands.fail) throw new AgentFailure('agent_error', 'the demo agent was told to fail')
      return { outcome: 'success' }
    },
  }
}

/** `/slow 10` makes the answer's words take ten seconds together. */
function wordMs(commands: DemoCommands, run: AgentRun): number {
  if (commands.slowSeconds === undefined) return WORD_MS
  const words = answerTo(run, commands).match(/\S+/g)?.length ?? 1
  return Math.ceil((commands.slowSeconds * 1000) / Math.max(1, words))
}

async function think({ id, emit, words }: Speaker) {
  const spanId = id('r')
  const messageId = id('r')
  await emit(
    { type: EventType.REASONING_START, messageId: spanId },
    { type: EventType.REASONING_MESSAGE_START, messageId, role: 'reasoning' },
  )
  await words('First I count the turns, then I look for commands.', (delta) => ({
    type: EventType.REASONING_MESSAGE_CONTENT,
    messageId,
    delta,
  }))
  await emit(
    { type: EventType.REASONING_MESSAGE_END, messageId },
    { type: EventType.REASONING_END, messageId: spanId },
  )
}

async function showState({ emit }: Speaker, run: AgentRun) {
  const before = typeof run.state === 'object' && run.state !== null ? run.state : {}
  const snapshot = { ...before, demo: { turn: userTurns(run), done: false } }
  await emit({ type: EventType.STATE_SNAPSHOT, snapshot })
  const delta = [{ op: 'replace' as const, path: '/demo/done', value: true }]
  await emit({ type: EventType.STATE_DELTA, delta })
}

async function showActivity({ id, emit }: Speaker) {
  const messageId = id('a')
  const activityType = 'demo.progress'
  await emit({
    type: EventType.ACTIVITY_SNAPSHOT,
    messageId,
    activityType,
    content: { percent: 0, label: 'Looking' },
  })
  const patch = [{ op: 'replace' as const, path: '/percent', value: 100 }]
  await emit({ type: EventType.ACTIVITY_DELTA, messageId, activityType, patch })
}

async function callTool({ id, emit, words }: Speaker, run: AgentRun, text: string) {
  const parentMessageId = id('m')
  const toolCallId = id('t')
  await emit({
    type: EventType.TOOL_CALL_START,
    toolCallId,
    toolCallName: 'demo_lookup',
    parentMessageId,
  })
  await words(JSON.stringify({ query: text, limit: 3 }), (delta) => ({
    type: EventType.TOOL_CALL_ARGS,
    toolCallId,
    delta,
  }))
  await emit({ type: EventType.TOOL_CALL_END, toolCallId })
  // It reaches nothing, so it may be done again; an attempt that finds its result does not.
  const found = await run.step('demo_lookup', { kind: 'tool', policy: 'retry' }, () => ({
    query: text,
    characters: [...text].length,
  }))
  await emit({
    type: EventType.TOOL_CALL_RESULT,
    messageId: id('m'),
    toolCallId,
    content: JSON.stringify(found),
    role: 'tool',
  })
}

function userTurns(run: AgentRun): number {
  return run.messages.filter((message) => message.role === 'user').length
}
