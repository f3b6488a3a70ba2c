// Goal: whoever joins a run at whatever moment ends up with what is stored. Method: two BFFs, two
// runners, owners killed in mid-answer; readers join when an observing reader sees a moment come.
import { type AgUiEvent, emptyFold, foldEvents, type Message } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { type Frame, readEvents, readLog, request, type Sent, send } from '../support/api.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { type Place, placeOf, placesOf, preludeOf, takeoversOf } from '../support/readers.ts'
import { type Random, seeded } from '../support/seeded.ts'
import { stockClientHolds } from '../support/stock-clients.ts'

/** One reader; without `after` it came without a cursor. */
type Join = { after?: number; late: boolean; frames: Promise<Frame[]> }

type Watched = Sent & { log: Promise<Frame[]>; joins: Join[] }

const KILLED_IN = ['text', 'tool', 'reasoning'] as const
const RUNS_PER_ROUND = 4
const MESSAGE =
  'tell me something that takes a while /think /activity /state /slow 2.5 /tool ' +
  'what is the weather like in the capital of every country that begins with an L today'

/** Who says something in a turn that MESSAGE began; the call itself has no content. */
const ONE_ANSWER = ['user', 'reasoning', 'activity', 'tool', 'assistant']

/** How many of a construct's frames make a reader come: about as many join each construct. */
const JOIN_CHANCE: Partial<Record<Place, number>> = { reasoning: 0.5, tool: 0.5, text: 0.1 }

test('readers that join at any moment end up with exactly what is stored', async () => {
  const random = seeded('stream joins')
  await using holdfast = await startHoldfast({
    bffs: 2,
    runners: 2,
    agents: { agents: { demo: { type: 'demo', effects: 'none' } } },
    env: { LEASE_SECONDS: '1' },
  })
  const counts = { cursor: tally(), none: tally() }
  for (const place of KILLED_IN) {
    for (const run of await round(holdfast, random, place)) await verify(holdfast, run, counts)
    await holdfast.startRunner()
  }
  console.info('joins', counts)
  for (const place of [...KILLED_IN, 'takeover', 'end'] as const) {
    expect(counts.cursor[place] + counts.none[place], place).toBeGreaterThanOrEqual(30)
    expect(counts.none[place], `${place}, without a cursor`).toBeGreaterThanOrEqual(8)
  }
  const all = [counts.cursor, counts.none].flatMap((each) => Object.values(each))
  expect(all.reduce((sum, each) => sum + each)).toBeGreaterThanOrEqual(200)
}, 90_000)

function tally(): Record<Place, number> {
  return { reasoning: 0, tool: 0, text: 0, takeover: 0, end: 0, elsewhere: 0 }
}

/** Some runs at once; the owner of the first is killed while that run has `place` open. */
async function round(holdfast: Holdfast, random: Random, place: Place): Promise<Watched[]> {
  const seen = Promise.withResolvers<void>()
  const runs = await Promise.all(
    Array.from({ length: RUNS_PER_ROUND }, (_, at) =>
      startRun(holdfast, random, (now) => {
        if (at === 0 && now === place && random.chance(0.4)) seen.resolve()
      }),
    ),
  )
  await seen.promise
  const [first = ''] = await ownersOf(holdfast, runs.slice(0, 1))
  holdfast.runners.find(({ bootId }) => bootId === first)?.kill('SIGKILL')
  await holdfast.runners.find(({ bootId }) => bootId === first)?.exited
  const owners = await ownersOf(holdfast, runs)
  // Nothing moves now until another runner takes over, and these come in between.
  const orphans = runs.filter((_, at) => owners[at] === first)
  for (const run of orphans) {
    for (let count = 0; count < 4; count += 1) run.joins.push(join(holdfast, random, run.runId))
  }
  await Promise.all(runs.map(({ log }) => log))
  for (const run of runs) await joinLate(holdfast, random, run)
  return runs
}

async function ownersOf({ url }: Holdfast, runs: readonly Sent[]): Promise<string[]> {
  const answers = await Promise.all(runs.map(({ runId }) => request(`${url}/runs/${runId}`)))
  return answers.map(({ body }) => {
    const attempts = body['attempts'] as { runner: string }[]
    return attempts.at(-1)?.runner ?? ''
  })
}

/** The second turn of a conversation, with an observer who lets others join. */
async function startRun(
  holdfast: Holdfast,
  random: Random,
  onPlace: (place: Place) => void,
): Promise<Watched> {
  const { conversationId, runId: before } = await send(holdfast.url, '/slow 0.01 hello')
  await readLog(holdfast.url, before)
  const { runId } = await send(holdfast.url, MESSAGE, { conversationId })
  const joins: Join[] = []
  let fold = emptyFold()
  const log: AgUiEvent[] = []
  function onFrame({ id, event }: Frame) {
    log.push(event)
    fold = foldEvents(fold, [event])
    const place = placeOf(fold)
    onPlace(place)
    if (event.type === 'MESSAGES_SNAPSHOT') {
      for (const { from, to } of takeoversOf(log).slice(-1)) {
        for (let after = from; after <= to; after += 1) {
          joins.push(join(holdfast, random, runId, after))
        }
      }
    }
    if (!random.chance(JOIN_CHANCE[place] ?? 0)) return
    const cursor = random.chance(0.4) && id !== null ? [id] : []
    joins.push(join(holdfast, random, runId, ...cursor))
  }
  const reading = readEvents(random.pick(holdfast.bffs).url, runId, { after: 0, onFrame })
  return { runId, conversationId, joins, log: reading }
}

async function joinLate(holdfast: Holdfast, random: Random, run: Watched): Promise<void> {
  const { length } = await run.log
  const joins = [
    join(holdfast, random, run.runId),
    join(holdfast, random, run.runId, length),
    join(holdfast, random, run.runId, random.whole(0, length - 1)),
  ]
  run.joins.push(...joins.map((each) => ({ ...each, late: true })))
}

function join({ bffs }: Holdfast, random: Random, runId: string, after?: number): Join {
  const cursor = after === undefined ? {} : { after }
  return { ...cursor, late: false, frames: readEvents(random.pick(bffs).url, runId, cursor) }
}

async function verify(
  holdfast: Holdfast,
  run: Watched,
  counts: Record<'cursor' | 'none', Record<Place, number>>,
): Promise<void> {
  const log = await run.log
  expect(log.map(({ id }) => id)).toEqual(log.map((_, at) => at + 1))
  for (const { url } of holdfast.bffs) expect(await readLog(url, run.runId)).toEqual(log)
  const events = log.map(({ event }) => event)
  const places = placesOf(events)
  const { body } = await request(`${holdfast.url}/conversations/${run.conversationId}`)
  const rows = body['messages'] as { turn: number; status: string; message: Message }[]
  expect(rows.every(({ status }) => status === 'complete')).toBe(true)
  const stored = { messages: rows.map(({ message }) => message), state: body['state'] }
  const before = rows.filter(({ turn }) => turn === 1).map(({ message }) => message)
  expect(await stockClientHolds(events, { messages: before })).toEqual(stored)
  // Whatever a lost attempt said is withdrawn; of its reasoning and activity an empty shell is left.
  const said = rows.flatMap(({ turn, message }) =>
    turn === 1 || !message.content || isEmpty(message.content) ? [] : message.role,
  )
  expect(said).toEqual(expect.arrayContaining(ONE_ANSWER))
  expect(said).toHaveLength(ONE_ANSWER.length)

  for (const { after, late, frames: reading } of run.joins) {
    const frames = await reading
    if (after !== undefined) {
      counts.cursor[late ? 'end' : (places[after] ?? 'elsewhere')] += 1
      expect(frames, `after ${after}`).toEqual(log.slice(after))
      continue
    }
    const { prelude, sequence, rest } = preludeOf(frames)
    counts.none[late ? 'end' : (places[sequence] ?? 'elsewhere')] += 1
    expect(prelude[0]?.type).toBe('RUN_STARTED')
    expect(rest, `behind a prelude at ${sequence}`).toEqual(log.slice(sequence))
    expect(
      await stockClientHolds(frames.map(({ event }) => event)),
      `a prelude at ${sequence} of ${run.runId}`,
    ).toEqual(stored)
  }
}

function isEmpty(content: object | string): boolean {
  return Object.keys(content).length === 0
}
