import type { AgUiEvent } from '@holdfast/protocol'
import { expect, test } from 'vitest'
import { isReadable, type ReadAnswer, type ReadOutcome, readParts } from './in-process.ts'
import { type AgentAt, type NamedCase, replay, said, type UpstreamCase } from './upstream-cases.ts'

/** One protocol, as the tests see it: how an agent reads it, and what of it is an ending. */
export type Protocol = {
  readonly read: ReadAnswer
  /** Of an event's payload; told without the agent's own code. */
  readonly isEnding: (value: unknown) => boolean
  /** Events that come of what an answer means, not of reading it. */
  readonly isLater?: (event: AgUiEvent) => boolean
}

/** A few thousand times the same. */
const LONG = { timeout: 60_000 }

/** Adds the tests that cut and break the bodies of all cases at every byte. */
export function testEveryCut(cases: readonly NamedCase[], protocol: Protocol): void {
  const { read, isEnding, isLater = () => false } = protocol
  const readable = cases.filter(({ expected }) => isReadable(expected))

  test.each(readable)('$name: the same wherever the bytes are cut in two', LONG, async (given) => {
    const { expected, bytes } = given
    const events = said(expected.events.filter((event) => !isLater(event)))
    for (let at = 0; at <= bytes.length; at += 1) {
      const outcome = await readParts([bytes.subarray(0, at), bytes.subarray(at)], expected, read)
      expect(said(outcome.events), `cut at ${at}`).toEqual(events)
      expect(ending(outcome), `cut at ${at}`).toEqual(ending(expected))
    }
  })

  test.each(readable)('$name: a connection that breaks keeps what came', LONG, async (given) => {
    const { expected, bytes } = given
    const isStream = !expected.response?.headers?.['content-type']?.includes('json')
    const whole = await readParts([bytes], expected, read)
    for (let at = 0; at <= bytes.length; at += 1) {
      const came = bytes.subarray(0, at)
      const outcome = await readParts([came], expected, read, 'break')
      expectPrefix(outcome, whole.events, `broken at ${at}`)
      const isEnded = isStream && endingIn(came, isEnding)
      // A CR may be the first half of a line's end, so what it ends may wait for the next byte.
      const wasEnded = isStream && endingIn(came.subarray(0, -1), isEnding)
      if (!outcome.failure) expect(isEnded, `broken at ${at}`).toBe(true)
      else {
        if (expected.result) expect(wasEnded, `broken at ${at}`).toBe(false)
        expect(['upstream_truncated', expected.failure?.code]).toContain(outcome.failure.code)
        if (outcome.events.length > 0) expect(outcome.failure.retryable).toBe(false)
      }
    }
  })
}

/** Adds the test that resets the connection of a small stream behind each of its bytes. */
export function testEveryReset(
  given: NamedCase | undefined,
  { read }: Protocol,
  agentAt: AgentAt,
): void {
  test('a reset behind any byte keeps what came and is no success', {
    timeout: 60_000,
  }, async () => {
    if (!given) throw new Error('the stream is not in the corpus')
    const { expected, bytes } = given
    for (let count = 0; count < bytes.length; count += 1) {
      const came = bytes.subarray(0, count)
      const { events, result } = await readParts([came], expected, read, 'break')
      if (result !== undefined) break
      const code = events.length > 0 ? 'upstream_truncated' : expect.stringMatching(/^upstream_/)
      const failure = { code, retryable: events.length === 0 }
      const { result: _, ...same } = expected
      const cut = { ...same, events, failure, response: { ending: 'reset' } as const }
      await replay({ name: given.name, bytes: came, expected: cut }, undefined, agentAt)
    }
  })
}

/** Whether an event with its blank line is an ending: the plain way to read a whole stream. */
export function endingIn(bytes: Uint8Array, isEnding: (value: unknown) => boolean): boolean {
  const lines = new TextDecoder().decode(bytes).replaceAll(/\r\n?/g, '\n')
  return lines
    .split('\n\n')
    .slice(0, -1)
    .some((block) => isEnding(payloadOf(block)))
}

function payloadOf(block: string): unknown {
  const data = block.split('\n').filter((line) => line.startsWith('data:'))
  const payload = data.map((line) => line.slice('data:'.length)).join('\n')
  if (payload.trim() === '') return undefined
  try {
    return JSON.parse(payload)
  } catch {
    return undefined
  }
}

function ending({ failure }: Pick<ReadOutcome, 'failure'> | UpstreamCase) {
  return failure && { code: failure.code, retryable: failure.retryable }
}

/**
 * What was said until the cut, in the place of half a character a sign that it was lost, and the ends of what is open
 * if the answer was over by then.
 */
function expectPrefix({ events, failure }: ReadOutcome, whole: readonly AgUiEvent[], at: string) {
  const isAdded = (event: AgUiEvent) =>
    ('delta' in event && event.delta === '\ufffd') || (!failure && event.type.endsWith('_END'))
  let count = 0
  while (count < events.length && same(events[count], whole[count])) count += 1
  expect(
    events.slice(count).filter((event) => !isAdded(event)),
    at,
  ).toEqual([])
}

function same(one: AgUiEvent | undefined, other: AgUiEvent | undefined): boolean {
  return JSON.stringify(one) === JSON.stringify(other)
}
