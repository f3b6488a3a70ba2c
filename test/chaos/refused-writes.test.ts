// Goal: no write that the fence refused is forgotten, although what made it late often makes the database hard to
// reach as well. Method: a runner that drains loses its lease while it speaks, and the ledger is locked just then.
import type { AgUiEvent } from '@holdfast/protocol'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { send } from '../support/api.ts'
import { attach, checkRun } from '../support/checker.ts'
import { type Holdfast, startHoldfast } from '../support/holdfast.ts'
import { connect } from '../support/sql.ts'
import { answer, opening, startUpstream, type Upstream } from '../support/upstream.ts'
import { outcomes, until } from './observe.ts'

let upstream: Upstream
let holdfast: Holdfast

beforeAll(async () => {
  upstream = await startUpstream()
  holdfast = await startHoldfast({
    // Nothing is renewed while this goes on.
    env: { LEASE_SECONDS: '60', DRAIN_SECONDS: '60' },
    agents: { agents: { remote: { type: 'ag-ui', url: upstream.url, effects: 'none' } } },
  })
})

afterAll(async () => {
  await holdfast?.[Symbol.asyncDispose]()
  await upstream?.[Symbol.asyncDispose]()
})

test('a refused write gets its row, also when the ledger cannot be written at first', async () => {
  const [loser] = holdfast.runners
  if (!loser) throw new Error('there is a runner')
  await using sql = await connect(holdfast.databaseUrl)
  const { runId } = await send(holdfast.url, 'speak')
  const first = await upstream.exchange(0)
  first.say(...opening(first, 'Said by '))
  await attach(holdfast.url, runId).seen(({ type }) => type === 'TEXT_MESSAGE_CONTENT')
  // Whoever drains takes nothing over, so it cannot be its own heir.
  loser.kill('SIGTERM')
  await until('the first one drains', async () => {
    const [runner] = await sql<{ draining: boolean }>('SELECT draining FROM holdfast.runners')
    return runner?.draining
  })
  const heir = await holdfast.startRunner()
  await sql('UPDATE holdfast.runs SET lease_until = clock_timestamp()')
  const second = await upstream.exchange(1)
  await sql('BEGIN')
  await sql('LOCK TABLE holdfast.stale_writes IN EXCLUSIVE MODE')
  const more = { type: 'TEXT_MESSAGE_CONTENT', messageId: 'm1', delta: 'the one who lost.' }
  first.say(more as AgUiEvent)
  await until('its write was refused, and so was what it wrote of that', () =>
    loser.log().includes('the ledger failed'),
  )
  await sql('COMMIT')
  answer(second, 'Said by the heir.')
  const { run, text } = await checkRun(holdfast.url, runId)
  expect(text).toBe('Said by the heir.')
  expect(outcomes(run)).toEqual(['lost', 'succeeded'])
  expect(run.attempts.map(({ runner }) => runner)).toEqual([loser.bootId, heir.bootId])
  expect((await loser.exited).code).toBe(0)
  const rows = await sql(
    'SELECT operation, epoch, current_epoch, runner FROM holdfast.stale_writes',
  )
  expect(rows).toEqual([{ operation: 'append', epoch: 1, current_epoch: 2, runner: loser.bootId }])
})
