import { EventType } from '@ag-ui/core'
import type { Message } from '../event.ts'
import type { OpenConstruct, OpenKind } from '../open-constructs.ts'
import { type Builder, type Dice, metadataOf } from './builder.ts'

type Move = (log: Builder, dice: Dice) => void

/** Each adds events that are valid where the log stands, or nothing if there are none. */
export const MOVES: readonly Move[] = [
  startText,
  appendText,
  appendText,
  endText,
  startTool,
  appendArguments,
  appendArguments,
  endTool,
  addResult,
  startReasoning,
  startReasoningMessage,
  appendReasoning,
  endReasoning,
  encrypt,
  toggleStep,
  startSubagent,
  endSubagent,
  setState,
  patchState,
  showActivity,
  patchActivity,
  snapshot,
  custom,
]

type Owner = { subagentRunId?: string }

function pick<T>(list: readonly T[], n: number): T | undefined {
  return list[n % list.length]
}

function openOf(log: Builder, kind: OpenKind): OpenConstruct[] {
  return log.fold.open.filter((one) => one.kind === kind)
}

/** A new thing belongs to the agent, to an open subagent, or to one that was never announced. */
function newOwner(log: Builder, { b }: Dice): Owner {
  const owners = [undefined, undefined, 'free', ...openOf(log, 'subagent').map((one) => one.id)]
  return tag(pick(owners, b))
}

function tag(owner: string | undefined): Owner {
  return owner === undefined ? {} : { subagentRunId: owner }
}

/** What continues a thing names its owner or nobody. */
function maybe(owner: string | undefined, { b }: Dice): Owner {
  return b % 2 === 0 ? tag(owner) : {}
}

function messagesOf(log: Builder, ...roles: Message['role'][]): Message[] {
  return log.fold.messages.filter((message) => roles.includes(message.role))
}

function colliding(log: Builder, role: Message['role']): Message['role'][] {
  return log.collides ? [role] : []
}

function startText(log: Builder, dice: Dice) {
  const open = new Set(openOf(log, 'text').map((one) => one.id))
  const again = pick(messagesOf(log, 'assistant', 'user', ...colliding(log, 'activity')), dice.b)
  const reuses = dice.a % 3 === 0 && again && !open.has(again.id)
  const owner = reuses && again.role !== 'activity' ? tag(again.subagentRunId) : newOwner(log, dice)
  log.add({
    type: EventType.TEXT_MESSAGE_START,
    messageId: reuses ? again.id : log.mint('m'),
    ...(dice.a % 2 === 0 && { role: pick(['user', 'system'] as const, dice.b) ?? 'assistant' }),
    ...(dice.a % 5 === 0 && { name: 'someone' }),
    ...(reuses && again.role === 'activity' ? {} : owner),
    ...metadataOf(dice),
  })
}

function ownerOfStart(one: OpenConstruct): string | undefined {
  return 'subagentRunId' in one.start ? one.start.subagentRunId : undefined
}

function appendText(log: Builder, dice: Dice) {
  const one = pick(openOf(log, 'text'), dice.b)
  if (!one) return
  log.add({
    type: EventType.TEXT_MESSAGE_CONTENT,
    messageId: one.id,
    delta: dice.text,
    ...maybe(ownerOfStart(one), dice),
    ...(dice.a % 3 === 0 && metadataOf(dice)),
  })
}

function endText(log: Builder, dice: Dice) {
  const one = pick(openOf(log, 'text'), dice.b)
  if (!one) return
  log.add({
    type: EventType.TEXT_MESSAGE_END,
    messageId: one.id,
    ...maybe(ownerOfStart(one), dice),
    ...metadataOf(dice),
  })
}

function startTool(log: Builder, dice: Dice) {
  const toolCallId = log.mint('c')
  const start = { type: EventType.TOOL_CALL_START as const, toolCallId, toolCallName: 'look' }
  const parent = pick(messagesOf(log, 'assistant'), dice.b)
  const other = pick(messagesOf(log, 'user', 'activity', 'tool'), dice.b)
  const closed = pick(callIds(log), dice.b)
  if (dice.a % 11 === 0 && closed && !openOf(log, 'tool').some((one) => one.id === closed)) {
    log.add({ ...start, toolCallId: closed, toolCallName: 'looked', ...metadataOf(dice) })
  } else if (dice.a % 4 === 0 && parent) {
    log.add({ ...start, parentMessageId: parent.id, ...maybe(parent.subagentRunId, dice) })
  } else if (dice.a % 7 === 0 && other) log.add({ ...start, parentMessageId: other.id })
  else {
    const named = dice.a % 2 === 0 ? { parentMessageId: log.mint('m') } : {}
    log.add({ ...start, ...named, ...newOwner(log, dice), ...metadataOf(dice) })
  }
}

function callIds(log: Builder): string[] {
  return log.fold.messages.flatMap((message) =>
    message.role === 'assistant' ? (message.toolCalls ?? []).map((call) => call.id) : [],
  )
}

function appendArguments(log: Builder, dice: Dice) {
  const one = pick(openOf(log, 'tool'), dice.b)
  if (!one) return
  log.add({
    type: EventType.TOOL_CALL_ARGS,
    toolCallId: one.id,
    delta: dice.text,
    ...maybe(ownerOfStart(one), dice),
    ...(dice.a % 3 === 0 && metadataOf(dice)),
  })
}

function endTool(log: Builder, dice: Dice) {
  const one = pick(openOf(log, 'tool'), dice.b)
  if (!one) return
  log.add({ type: EventType.TOOL_CALL_END, toolCallId: one.id, ...metadataOf(dice) })
}

function addResult(log: Builder, dice: Dice) {
  log.add({
    type: EventType.TOOL_CALL_RESULT,
    messageId: log.mint('tool'),
    toolCallId: pick([...callIds(log), 'nobody'], dice.b) ?? 'nobody',
    content: dice.a % 2 === 0 ? dice.text : [{ type: 'text', text: dice.text }],
    ...(dice.a % 3 === 0 && { role: 'tool' }),
    ...newOwner(log, dice),
    ...metadataOf(dice),
  })
}

function startReasoning(log: Builder, dice: Dice) {
  const messageId = log.mint('r')
  const owner = newOwner(log, dice)
  log.owners.set(messageId, owner.subagentRunId)
  log.add({ type: EventType.REASONING_START, messageId, ...owner, ...metadataOf(dice) })
}

function startReasoningMessage(log: Builder, dice: Dice) {
  const open = new Set(openOf(log, 'reasoning_message').map((one) => one.id))
  const spans = openOf(log, 'reasoning').filter((one) => !open.has(one.id))
  const shared = dice.a % 2 === 0 ? pick(spans, dice.b)?.id : undefined
  const messageId = shared ?? log.mint('r')
  const owner = shared === undefined ? newOwner(log, dice) : tag(log.owners.get(shared))
  log.owners.set(messageId, owner.subagentRunId)
  const type = EventType.REASONING_MESSAGE_START
  log.add({ type, messageId, role: 'reasoning', ...owner, ...metadataOf(dice) })
}

function appendReasoning(log: Builder, dice: Dice) {
  const one = pick(openOf(log, 'reasoning_message'), dice.b)
  if (!one) return
  log.add({
    type: EventType.REASONING_MESSAGE_CONTENT,
    messageId: one.id,
    delta: dice.text,
    ...maybe(log.owners.get(one.id), dice),
    ...(dice.a % 3 === 0 && metadataOf(dice)),
  })
}

function endReasoning(log: Builder, dice: Dice) {
  const one = pick([...openOf(log, 'reasoning_message'), ...openOf(log, 'reasoning')], dice.b)
  if (!one) return
  const type = one.kind === 'reasoning' ? EventType.REASONING_END : EventType.REASONING_MESSAGE_END
  log.add({ type, messageId: one.id, ...maybe(log.owners.get(one.id), dice), ...metadataOf(dice) })
}

function encrypt(log: Builder, dice: Dice) {
  const isCall = dice.a % 2 === 0
  const ids = isCall ? callIds(log) : log.fold.messages.map((message) => message.id)
  log.add({
    type: EventType.REASONING_ENCRYPTED_VALUE,
    subtype: isCall ? 'tool-call' : 'message',
    entityId: pick([...ids, 'nobody'], dice.b) ?? 'nobody',
    encryptedValue: dice.text,
  })
}

function toggleStep(log: Builder, dice: Dice) {
  const stepName = dice.a % 2 === 0 ? 'plan' : 'act'
  const owner = newOwner(log, dice)
  const isOpen = openOf(log, 'step').some(
    (one) => one.id === stepName && ownerOfStart(one) === owner.subagentRunId,
  )
  const type = isOpen ? EventType.STEP_FINISHED : EventType.STEP_STARTED
  log.add({ type, stepName, ...owner, ...metadataOf(dice) })
}

function startSubagent(log: Builder, dice: Dice) {
  const parent = dice.a % 2 === 0 ? pick(openOf(log, 'subagent'), dice.b) : undefined
  log.add({
    type: EventType.SUBAGENT_STARTED,
    subagentRunId: log.mint('s'),
    name: 'helper',
    ...(parent && { parentSubagentRunId: parent.id }),
  })
}

function endSubagent(log: Builder, dice: Dice) {
  const one = pick(openOf(log, 'subagent'), dice.b)
  if (!one) return
  if (dice.a % 2 === 0) {
    log.add({ type: EventType.SUBAGENT_FINISHED, subagentRunId: one.id, result: dice.text })
  } else log.add({ type: EventType.SUBAGENT_ERROR, subagentRunId: one.id, message: dice.text })
}

function setState(log: Builder, { a, text }: Dice) {
  log.add({ type: EventType.STATE_SNAPSHOT, snapshot: pick([{ text }, { list: [] }, null, 7], a) })
}

function patchState(log: Builder, { a, b, text }: Dice) {
  const delta = pick(
    [
      { op: 'add' as const, path: '/n', value: { text } },
      { op: 'add' as const, path: '/n/deep', value: b },
      { op: 'remove' as const, path: '/n' },
      { op: 'replace' as const, path: '/missing/deeper', value: 1 },
      { op: 'add' as const, path: '/list/-', value: b },
      { op: 'test' as const, path: '/n', value: b },
    ],
    a,
  )
  const first = { op: 'add' as const, path: '/n', value: { a } }
  if (delta) log.add({ type: EventType.STATE_DELTA, delta: b % 2 === 0 ? [first, delta] : [delta] })
}

function showActivity(log: Builder, dice: Dice) {
  const again = pick(messagesOf(log, 'activity', ...colliding(log, 'assistant')), dice.b)
  const messageId = dice.a % 2 === 0 && again ? again.id : log.mint('v')
  log.add({
    type: EventType.ACTIVITY_SNAPSHOT,
    messageId,
    activityType: pick(['plan', 'chart'], dice.b) ?? 'plan',
    content: { steps: [dice.text] },
    ...(dice.a % 3 === 0 && { replace: dice.a % 2 === 1 }),
    ...newOwner(log, dice),
    ...metadataOf(dice),
  })
}

function patchActivity(log: Builder, dice: Dice) {
  const ids = messagesOf(log, 'activity', 'assistant').map((message) => message.id)
  const messageId = pick([...ids, 'nobody'], dice.b) ?? 'nobody'
  log.add({
    type: EventType.ACTIVITY_DELTA,
    messageId,
    activityType: 'patched',
    patch: [
      { op: 'add', path: '/first', value: { text: dice.text } },
      dice.a % 3 === 0
        ? { op: 'remove', path: '/missing' }
        : { op: 'add', path: '/first/second', value: dice.a },
    ],
    ...metadataOf(dice),
  })
}

/** Adds, replaces and drops messages, but never one that is still being written. */
function snapshot(log: Builder, dice: Dice) {
  const open = new Set(log.fold.open.map((one) => one.id))
  const isBusy = (message: Message) =>
    open.has(message.id) ||
    (message.role === 'assistant' && (message.toolCalls ?? []).some((call) => open.has(call.id)))
  const kept = log.fold.messages.filter((message, index) => {
    if (isBusy(message)) return true
    if (message.role === 'activity' && dice.a % 5 === 0) return false
    if (message.role === 'reasoning' && dice.a % 7 === 0) return false
    return index % 9 !== dice.b % 9
  })
  const last = kept.findLast((message) => message.role === 'assistant' && !isBusy(message))
  const messages = kept.map((message) =>
    message === last && message.role === 'assistant' ? { ...message, content: dice.text } : message,
  )
  const added: Message = { id: log.mint('m'), role: 'assistant', content: dice.text }
  const scope = pick([undefined, undefined, null, ['plan'], 'nonsense'], dice.a)
  log.add({
    type: EventType.MESSAGES_SNAPSHOT,
    messages: [added, ...messages],
    ...(scope !== undefined && {
      metadata: { '@ag-ui/client': { authoritativeActivityTypes: scope } },
    }),
  })
}

function custom(log: Builder, { a, text }: Dice) {
  log.add({ type: EventType.CUSTOM, name: 'x.note', value: a % 2 === 0 ? null : text })
}
