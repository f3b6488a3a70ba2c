// Goal: one turn, end to end, over the public API. Method: real processes, a real database, plain HTTP.
import { randomUUID } from 'node:crypto'
import { emptyFold, foldEvents } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { readEvents, readLog, request, send } from '../support/api.ts'
import { startHoldfast } from '../support/holdfast.ts'

test('a message is answered, and the conversation equals the fold of its stream', async () => {
  await using holdfast = await startHoldfast()
  const { runId, conversationId } = await send(holdfast.url, 'hello /tool')
  const frames = await readLog(holdfast.url, runId)
  expect(frames.map((frame) => frame.id)).toEqual(frames.map((_, at) => at + 1))
  const fold = foldEvents(
    emptyFold(),
    frames.map((frame) => frame.event),
  )
  const { body } = await request(`${holdfast.url}/conversations/${conversationId}`)
  const messages = body['messages'] as { message: unknown; status: string }[]
  expect(messages.map(({ message }) => message)).toEqual(fold.messages)
  expect(messages.every(({ status }) => status === 'complete')).toBe(true)
  expect(body['activeRun']).toBeNull()
})

test('a reader that was cut gets exactly the rest from its last event', async () => {
  await using holdfast = await startHoldfast()
  const { runId } = await send(holdfast.url, '/slow 1 tell me')
  const first = await readEvents(holdfast.url, runId, { after: 0, until: (f) => f.length >= 6 })
  const cut = first.at(-1)?.id ?? 0
  const rest = await readEvents(holdfast.url, runId, { lastEventId: cut })
  const whole = await readLog(holdfast.url, runId)
  expect([...first, ...rest]).toEqual(whole)
})

test('the same turn posted twice is one run, also after it ended', async () => {
  await using holdfast = await startHoldfast()
  const turn = { message: 'hello', clientTurnId: randomUUID() }
  const first = await request(`${holdfast.url}/runs`, { json: turn })
  const again = await request(`${holdfast.url}/runs`, { json: turn })
  expect([first.status, again.status]).toEqual([202, 200])
  await readLog(holdfast.url, String(first.body['runId']))
  const late = await request(`${holdfast.url}/runs`, { json: turn })
  expect(late.status).toBe(200)
  expect([again.body['runId'], late.body['runId']]).toEqual([
    first.body['runId'],
    first.body['runId'],
  ])
})

test('a cancel keeps what was delivered, as partial, and ends the stream as cancelled', async () => {
  await using holdfast = await startHoldfast()
  const { runId, conversationId } = await send(holdfast.url, '/slow 30 a long story')
  const before = await readEvents(holdfast.url, runId, { after: 0, until: (f) => f.length >= 5 })
  const cancel = await request(`${holdfast.url}/runs/${runId}/cancel`, { json: {} })
  expect(cancel.status).toBe(202)
  const log = await readLog(holdfast.url, runId)
  expect(log.slice(0, before.length)).toEqual(before)
  expect(log.at(-1)?.event).toMatchObject({ type: 'RUN_FINISHED', outcome: { type: 'cancelled' } })
  const { body } = await request(`${holdfast.url}/conversations/${conversationId}`)
  const messages = body['messages'] as { message: { content: string }; status: string }[]
  const text = log.flatMap(({ event }) =>
    event.type === 'TEXT_MESSAGE_CONTENT' ? event.delta : [],
  )
  expect(messages[1]).toMatchObject({ status: 'partial', message: { content: text.join('') } })
})
