// Goal: the campaign's checker sees what it is there for. Method: a flawless history of two turns, which it must pass,
// spoilt in one way at a time.
import { expect, test } from 'vitest'
import { checkAll } from '../campaign/check/all.ts'
import { healthyEvidence } from '../campaign/check/healthy.ts'

type Evidence = ReturnType<typeof healthyEvidence>

/** What is planted, and the invariants that have to be named for it. */
const PLANTED: Record<string, { names: string; plant: (evidence: Evidence) => void }> = {
  'an event is missing in a log': {
    names: 'I5',
    plant: ({ stored }) => stored.logs.get('run-1')?.splice(3, 1),
  },
  'an event is missing for a reader': {
    names: 'I7',
    plant: ({ histories }) => histories.readings[0]?.frames.splice(3, 1),
  },
  'a reader got an event twice': {
    names: 'I7',
    plant({ histories }) {
      const frames = histories.readings[0]?.frames
      const [again] = frames?.slice(4, 5) ?? []
      if (again) frames?.splice(4, 0, again)
    },
  },
  'a reader got other bytes': {
    names: 'I7',
    plant({ histories }) {
      const frame = histories.readings[1]?.frames[3]
      if (frame) frame.data += ' '
    },
  },
  'a reader got no end': {
    names: 'I7',
    plant({ histories }) {
      const [reading] = histories.readings
      reading?.frames.pop()
      if (reading) reading.ended = false
    },
  },
  'a reader complained': {
    names: 'I7',
    plant: ({ histories }) => histories.readings[0]?.complaints.push('event 5 came after 5'),
  },
  'an ending changed after it was told': {
    names: 'I11',
    plant({ histories }) {
      const [view] = histories.views
      if (view) Object.assign(view, { state: 'failed', outcome: 'error' })
    },
  },
  'the end was sent before it could be read': {
    names: 'I10',
    plant({ histories }) {
      const [view] = histories.views
      if (view) Object.assign(view, { state: 'running', outcome: null, sequence: 11 })
    },
  },
  'a log has two terminal events': {
    names: 'I6',
    plant({ stored }) {
      const log = stored.logs.get('run-1')
      const last = log?.at(-1)
      if (last) log?.push({ ...last, sequence: last.sequence + 1 })
    },
  },
  'event and record disagree': {
    names: 'I6',
    plant({ stored }) {
      const run = stored.runs.get('run-2')
      if (run) run.state = 'succeeded'
    },
  },
  'a run never ended': {
    names: 'I4',
    plant({ stored }) {
      const run = stored.runs.get('run-1')
      if (run) run.state = 'running'
    },
  },
  'two attempts of a run at a time': {
    names: 'I19',
    plant({ stored }) {
      const first = stored.attempts.get('run-1')?.[0]
      if (first) first.endedAtMs = 3500
    },
  },
  'two turns of a conversation at a time': {
    names: 'I19',
    plant({ stored }) {
      const second = stored.runs.get('run-2')
      if (second) second.startedAtMs = 3500
    },
  },
  'an accepted run is lost': {
    names: 'I18',
    plant({ stored }) {
      stored.runs.delete('run-2')
      stored.turns.clear()
    },
  },
  'a turn became two runs': {
    names: 'I18',
    plant({ histories }) {
      const answer = histories.turns[0]?.answers[1]
      if (answer) answer.runId = 'run-2'
    },
  },
  'a foreign run was shown': {
    names: 'I20',
    plant({ histories }) {
      const [trespass] = histories.trespasses
      if (trespass) trespass.status = 200
    },
  },
  'a zombie spoke': {
    names: 'I1',
    plant({ stored }) {
      const line = stored.logs.get('run-1')?.[9]
      if (line?.event.type === 'TEXT_MESSAGE_CONTENT') line.event.delta = 'e1.1 '
    },
  },
  'a stored message is not what was said': {
    names: 'I8',
    plant({ stored }) {
      const message = stored.messages.get('c')?.[1]?.message
      if (message) message.content = 'e2.0 and more'
    },
  },
  'a message was not closed': {
    names: 'I12',
    plant({ stored }) {
      const log = stored.logs.get('run-1')
      log?.splice(10, 1)
    },
  },
  'an old attempt asked after a new one': {
    names: 'I3',
    plant({ histories }) {
      const [old] = histories.asked.splice(0, 1)
      if (old) histories.asked.push({ ...old, atMs: 3500 })
    },
  },
  'an upstream stayed connected': {
    names: 'I14',
    plant({ histories }) {
      const [asked] = histories.asked
      if (asked) asked.closedAtMs = () => null
    },
  },
  'the idempotency key changed': {
    names: 'I16',
    plant({ histories }) {
      const [, asked] = histories.asked
      if (asked) asked.idempotencyKey = 'run-1.2'
    },
  },
  'a second notification': {
    names: 'I17',
    plant({ histories }) {
      const [delivery] = histories.deliveries
      if (delivery) histories.deliveries.push({ ...delivery, eventId: 'n9' })
    },
  },
  'a notification before its result': {
    names: 'I17',
    plant({ histories }) {
      const [delivery] = histories.deliveries
      if (delivery) delivery.found = 'running'
    },
  },
  'a notification nobody signed': {
    names: 'I17',
    plant({ histories }) {
      const [delivery] = histories.deliveries
      if (delivery) delivery.signed = false
    },
  },
  'an endpoint was never told': {
    names: 'I17',
    plant: ({ histories }) => void histories.deliveries.splice(0, 2),
  },
  'a cancel that counted for nothing': {
    names: 'a cancel',
    plant: ({ histories }) =>
      histories.cancels.push({
        runId: 'run-1',
        status: 202,
        state: 'running',
        sentAtMs: 1,
        atMs: 2,
      }),
  },
  'a run that failed without a reason': {
    names: 'a run fails',
    plant({ stored }) {
      const run = stored.runs.get('run-1')
      if (run) Object.assign(run, { state: 'failed', errorCode: 'internal' })
    },
  },
  'a refused write without its row': {
    names: 'every refused write',
    plant: ({ stored }) => void stored.staleWrites.splice(0),
  },
}

test('the checker finds nothing in a flawless history', async () => {
  expect(await checkAll(healthyEvidence())).toEqual([])
})

test.for(Object.entries(PLANTED))('the checker finds that %s', async ([, { names, plant }]) => {
  const evidence = healthyEvidence()
  plant(evidence)
  const found = await checkAll(evidence)
  expect(found.map(({ invariant }) => invariant)).toContainEqual(
    expect.stringMatching(new RegExp(`^${names} `)),
  )
})
