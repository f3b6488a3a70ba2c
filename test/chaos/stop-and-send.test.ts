// Goal: whoever stops and sends again while an answer streams always gets the newest answer, in order. Method: fifty
// turns in one conversation, each sent while the one before it is in the middle of its answer.
import { randomUUID } from 'node:crypto'
import { expect, test } from 'vitest'
import { readEvents, request, send } from '../support/api.ts'
import { checkRun } from '../support/checker.ts'
import { startHoldfast } from '../support/holdfast.ts'

const TURNS = 50

test('of fifty turns that each stop the one before, all but the last are stopped and none is lost', async () => {
  await using holdfast = await startHoldfast({ bffs: 2, runners: 2, env: { LEASE_SECONDS: '10' } })
  const urls = holdfast.bffs.map(({ url }) => url)
  const { runId, conversationId } = await send(holdfast.url, 'turn 1 /slow 6')
  const runIds = [runId]
  for (let turn = 2; turn <= TURNS; turn += 1) {
    const url = urls[turn % urls.length] ?? holdfast.url
    await readEvents(url, runIds.at(-1) ?? '', {
      after: 0,
      until: (frames) => frames.some(({ event }) => event.type === 'TEXT_MESSAGE_CONTENT'),
    })
    const answer = await request(`${url}/runs`, {
      json: {
        message: turn === TURNS ? 'the last' : `turn ${turn} /slow 6`,
        clientTurnId: randomUUID(),
        conversationId,
        onActive: 'cancel',
      },
    })
    expect(answer.status).toBe(202)
    runIds.push(String(answer.body['runId']))
  }
  const checked = []
  for (const id of runIds) checked.push(await checkRun(holdfast.url, id))
  expect(checked.map(({ run }) => run.state)).toEqual([
    ...Array.from({ length: TURNS - 1 }, () => 'stopped'),
    'succeeded',
  ])
  expect(checked.slice(0, -1).every(({ messages }) => messages[1]?.status === 'partial')).toBe(true)
  expect(checked.at(-1)?.text).toContain(
    `This is turn ${TURNS} of our conversation. You said: “the last”.`,
  )
  // No turn was let in before the one it stopped had ended, only to be held off by the database.
  for (const runner of holdfast.runners) expect(runner.log()).not.toContain('a claim failed')
})
