import { randomUUID } from 'node:crypto'
import { wait } from '@holdfast/std'
import type { Random } from '../support/seeded.ts'
import { follow } from './follow.ts'
import type { Reading } from './history.ts'
import { cancelRun, type Sent, sendTurn, trespass, type User, viewRun } from './requests.ts'

/** What users do; how often is how often it stands here. */
const HABITS = [talk, talk, talk, talk, queue, queue, interrupt, impatient] as const

const WELL = ['fast', 'slow', 'odd', 'demo', 'failing'] as const
const UNWELL = ['silent', 'breaking', 'truncated', 'doubtful', 'brittle', 'poison'] as const

export type Crowd = {
  /** Resolves when everybody has what he waits for, after `leaving` aborted. */
  readonly done: Promise<void>
}

/** Users who do as they please until `leaving` aborts, and then only see through what they began. */
export function gather(users: readonly User[], each: number, leaving: AbortSignal): Crowd {
  const lives = users.flatMap((user) =>
    Array.from({ length: each }, async () => {
      while (!leaving.aborted) {
        await user.random.pick(HABITS)(user)
        await wait(user.random.whole(50, 800), leaving).catch(() => undefined)
      }
    }),
  )
  return { done: Promise.all(lives).then(() => undefined) }
}

/** A turn in a conversation of its own. */
async function talk(user: User) {
  await witness(user, await sendTurn(user, draft(user)))
}

/** Several turns, sent before the first of them has ended. */
async function queue(user: User) {
  const first = await sendTurn(user, draft(user))
  const { conversationId } = first
  if (!conversationId) return
  const more = Array.from({ length: user.random.whole(1, 3) }, () =>
    sendTurn(user, { ...draft(user), onActive: 'enqueue', conversationId }),
  )
  const answers = [first, ...(await Promise.all(more))]
  await Promise.all(answers.map((answer) => witness(user, answer)))
}

/** Stop and send: each turn while the one before it is being answered. */
async function interrupt(user: User) {
  const first = await sendTurn(user, { ...draft(user), agent: 'slow' })
  const { conversationId } = first
  if (!conversationId) return
  const watching = [witness(user, first)]
  for (let turn = user.random.whole(1, 3); turn > 0; turn -= 1) {
    await wait(user.random.whole(100, 1500))
    const next = await sendTurn(user, { ...draft(user), onActive: 'cancel', conversationId })
    watching.push(witness(user, next))
  }
  await Promise.all(watching)
}

/** Sends on while it is refused, and looks at what is not his. */
async function impatient(user: User) {
  const first = await sendTurn(user, { ...draft(user), agent: 'slow' })
  const { conversationId } = first
  if (!conversationId) return
  const watching = [witness(user, first)]
  for (let tries = 0; tries < 4; tries += 1) {
    const next = await sendTurn(user, { ...draft(user), onActive: 'reject', conversationId })
    if (next.runId) watching.push(witness(user, next))
    await wait(user.random.whole(100, 600))
  }
  const foreign = user.histories.turns.filter(({ user: name }) => name !== user.name)
  const runId = foreign.flatMap(({ answers }) => answers[0]?.runId ?? []).at(-1)
  await trespass(user, runId ?? randomUUID())
  await Promise.all(watching)
}

/** Reads an accepted run to its end with one or two readers, and does to it what users do meanwhile. */
async function witness(user: User, { runId, again }: Sent): Promise<void> {
  if (!runId) return
  const { random } = user
  const deeds: Promise<void>[] = [read(user, runId, 'start')]
  if (random.chance(0.4)) {
    deeds.push(later(random, 1500, () => read(user, runId, 'prelude')))
  }
  if (random.chance(0.25)) deeds.push(later(random, 3000, () => cancelRun(user, runId)))
  if (random.chance(0.3)) deeds.push(later(random, 3000, () => viewRun(user, runId, false)))
  if (random.chance(0.2)) deeds.push(later(random, 6000, again))
  await Promise.all(deeds)
}

async function read(user: User, runId: string, from: Reading['from']) {
  const reading: Reading = {
    runId,
    reader: `${user.name}, from the ${from}`,
    from,
    frames: [],
    connections: 0,
    ended: false,
    complaints: [],
  }
  user.histories.readings.push(reading)
  await follow(reading, user, user.patience)
  // Whoever was sent the end and asks again, anywhere, gets the same.
  if (reading.ended) await viewRun(user, runId, true)
}

async function later(random: Random, withinMs: number, deed: () => Promise<unknown>) {
  await wait(random.whole(0, withinMs))
  await deed()
}

/** A message that nobody says twice, so that it can be recognised wherever it comes up. */
function draft({ name, random, histories }: User) {
  const agent = random.pick(random.chance(0.6) ? WELL : UNWELL)
  return {
    message: `${name} says ${histories.turns.length}-${random.whole(0, 2 ** 31)}`,
    agent,
    onActive: 'reject' as const,
  }
}
