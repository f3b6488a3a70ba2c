import { isDeepStrictEqual } from 'node:util'
import { emptyFold, foldEvents, type Message } from '@holdfast/protocol'
import { isTerminalEvent } from '../../support/api.ts'
import { stockClientHolds } from '../../support/stock-clients.ts'
import type { Finding, Histories, Reading, Stored, StoredEvent, StoredRun } from '../history.ts'

/** I5 to I9, I12: every log by itself, against what is stored, and against what each reader kept of it. */
export async function checkLogs(histories: Histories, stored: Stored): Promise<Finding[]> {
  const found: Finding[] = []
  for (const run of stored.runs.values()) {
    const log = stored.logs.get(run.runId) ?? []
    found.push(...checkLog(run, log), ...(await checkFold(run, log, stored)))
  }
  for (const reading of histories.readings) found.push(...(await checkReading(reading, stored)))
  return found
}

function checkLog(run: StoredRun, log: readonly StoredEvent[]): Finding[] {
  const found: Finding[] = []
  const say = (invariant: string, detail: string) =>
    found.push({ invariant, runId: run.runId, detail })
  log.forEach(({ sequence, epoch, event }, at) => {
    if (sequence !== at + 1) say('I5 sequences have no gap', `${sequence} stands at ${at + 1}`)
    if (epoch < (log[at - 1]?.epoch ?? 0)) say('I1 epochs never fall', `at sequence ${sequence}`)
    if (event.type !== 'TEXT_MESSAGE_CONTENT' || run.agent === 'demo') return
    const speakers = [...event.delta.matchAll(/e(\d+)\./g)].map(([, said]) => Number(said))
    if (speakers.some((said) => said !== epoch)) {
      say('I1 nobody speaks under another’s epoch', `${event.delta} at ${sequence} of ${epoch}`)
    }
  })
  if (run.sequence !== log.length) {
    say('I5 the log is as long as its run says', `${log.length} events, ${run.sequence} told`)
  }
  const ends = log.filter(({ event }) => isTerminalEvent(event)).length
  const last = log.at(-1)
  if (ends !== 1 || !last || !isTerminalEvent(last.event)) {
    say('I6 one terminal event, and it is the last', `${ends} of them in ${log.length} events`)
  } else if (stateOf(last) !== run.state) {
    say('I6 event and record say the same', `${stateOf(last)} and ${run.state}`)
  }
  return found
}

/** The log folds to the stored messages, in our own fold and in AG-UI's client; a success has all its words. */
async function checkFold(
  run: StoredRun,
  log: readonly StoredEvent[],
  stored: Stored,
): Promise<Finding[]> {
  const { before, mine } = messagesOf(run, stored)
  const events = log.map(({ event }) => event)
  const spoken = foldEvents({ ...emptyFold(), messages: before }, events.slice(0, -1))
  const fold = foldEvents(spoken, events.slice(-1))
  const found: Finding[] = []
  const say = (invariant: string, detail: string) =>
    found.push({ invariant, runId: run.runId, detail })
  if (spoken.open.length > 0) {
    say('I12 everything is closed before the end', JSON.stringify(spoken.open))
  }
  const own = fold.messages.slice(before.length)
  if (!isDeepStrictEqual(own, mine)) {
    say('I8 the fold is what is stored', `${JSON.stringify(own)} and ${JSON.stringify(mine)}`)
  }
  const held = await stockClientHolds(events, { messages: before }).catch((error: Error) => error)
  if (held instanceof Error) say('I9 a log passes AG-UI’s verifier', held.message)
  else if (!isDeepStrictEqual(held.messages, [...before, ...mine])) {
    say('I8 AG-UI’s client holds what is stored', JSON.stringify(held.messages))
  }
  const isSpoken = run.state === 'succeeded' && run.agent !== 'demo'
  if (isSpoken && !isWhole(textOf(mine))) say('a success is whole', textOf(mine))
  return found
}

async function checkReading(reading: Reading, stored: Stored): Promise<Finding[]> {
  const { runId, frames } = reading
  const found: Finding[] = []
  const say = (invariant: string, detail: string) =>
    found.push({ invariant, runId, detail: `${reading.reader}: ${detail}` })
  for (const complaint of reading.complaints) say('I7 a reader gets exactly the rest', complaint)
  if (!reading.ended) say('I7 a reader gets the end', `${frames.length} frames`)
  const log = stored.logs.get(runId) ?? []
  const firstId = frames.findIndex(({ id }) => id !== null)
  // What a prelude says stands in no log; from its id on everything does.
  const suffix = reading.from === 'start' ? frames : frames.slice(firstId + 1)
  let expected = reading.from === 'start' ? 1 : (frames[firstId]?.id ?? 0) + 1
  for (const { id, data } of suffix) {
    if (id !== expected) {
      say('I7 a reader gets every event once', `event ${id} where ${expected} was due`)
    } else if (log[id - 1]?.json !== data) {
      say('I7 all readers get the same bytes', `event ${id}: ${data} and ${log[id - 1]?.json}`)
    }
    expected = (id ?? expected) + 1
  }
  const run = stored.runs.get(runId)
  if (reading.ended && expected !== log.length + 1) {
    say('I6 nothing follows the terminal event', `the log has ${log.length}, read ${expected - 1}`)
  }
  if (run && reading.ended && reading.from === 'prelude') {
    const { before, mine } = messagesOf(run, stored)
    const events = frames.map(({ data }) => JSON.parse(data))
    const held = await stockClientHolds(events).catch((error: Error) => error)
    if (held instanceof Error) say('I9 a prelude and its rest pass the verifier', held.message)
    else if (!holdsTurn(held.messages, before, mine)) {
      say('I8 a joined reader holds what is stored', JSON.stringify(held.messages))
    }
  }
  return found
}

/**
 * All of this turn, in its order, and nothing of earlier ones that is not stored. Whoever joined while those were at
 * work may lack their answers, or was told of them by a later snapshot, whose news AG-UI's client puts at the end.
 */
function holdsTurn(held: readonly Message[], before: readonly Message[], mine: readonly Message[]) {
  const ids = new Set(mine.map(({ id }) => id))
  const earlier = new Map(before.map((message) => [message.id, message]))
  const others = held.filter(({ id }) => !ids.has(id))
  return (
    isDeepStrictEqual(
      held.filter(({ id }) => ids.has(id)),
      mine,
    ) && others.every((message) => isDeepStrictEqual(message, earlier.get(message.id)))
  )
}

/** The messages of the turns before a run's, and its own. */
function messagesOf(run: StoredRun, stored: Stored): { before: Message[]; mine: Message[] } {
  const all = stored.messages.get(run.conversationId) ?? []
  const first = all.findIndex(({ runId }) => runId === run.runId)
  return {
    before: all.slice(0, Math.max(0, first)).map(({ message }) => message),
    mine: all.filter(({ runId }) => runId === run.runId).map(({ message }) => message),
  }
}

/** All words of one attempt, from its first to its last. */
function isWhole(text: string): boolean {
  const words = text.split(' ')
  const epoch = /^e\d+/.exec(text)?.[0]
  return words.every((word, at) => word === `${epoch}.${at === words.length - 1 ? 'end' : at}`)
}

function textOf(messages: readonly Message[]): string {
  return messages
    .flatMap(({ role, content }) => (role === 'assistant' ? String(content ?? '') : []))
    .join('')
}

function stateOf({ event }: StoredEvent): string {
  if (event.type === 'RUN_ERROR') return 'failed'
  const { outcome } = event as { outcome?: { type: string } }
  return outcome?.type === 'cancelled' ? 'stopped' : 'succeeded'
}
