import { InvariantError } from '@holdfast/std'
import { createParser, type EventSourceMessage } from 'eventsource-parser'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import { comment, frame, parseCursor, retry } from './framing.ts'

const anyFrame = fc.oneof(
  fc.record({
    id: fc.option(fc.nat()),
    json: fc.jsonValue().map((value) => JSON.stringify(value)),
  }),
  fc.constantFrom(comment('ping'), retry(1000)),
)

test('whatever is framed is read back, however the bytes are cut', () => {
  fc.assert(
    fc.property(fc.array(anyFrame), fc.array(fc.integer({ min: 1, max: 7 })), (parts, sizes) => {
      const frames = parts.map((part) =>
        typeof part === 'string' ? part : frame(part.id, part.json),
      )
      const read: EventSourceMessage[] = []
      const parser = createParser({ onEvent: (event) => read.push(event) })
      const decoder = new TextDecoder()
      const bytes = new TextEncoder().encode(frames.join(''))
      for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
        const size = sizes[turn % sizes.length] ?? bytes.length
        parser.feed(decoder.decode(bytes.subarray(at, at + size), { stream: true }))
        at += size
      }
      expect(read.map(({ id, data, event }) => ({ id, data, event }))).toEqual(
        parts.flatMap((part) =>
          typeof part === 'string' ? [] : [{ ...idOf(part.id), data: part.json }],
        ),
      )
    }),
    { seed: 11, numRuns: 300 },
  )
})

function idOf(id: number | null): { id?: string } {
  return id === null ? {} : { id: String(id) }
}

test('a frame is an id and one line of data, and nothing else', () => {
  expect(frame(7, '{"a":1}')).toBe('id: 7\ndata: {"a":1}\n\n')
  expect(frame(null, '{}')).toBe('data: {}\n\n')
})

test('what would break a frame is a bug', () => {
  expect(() => frame(1, '{\n}')).toThrow(InvariantError)
  expect(() => frame(1, '{\r}')).toThrow(InvariantError)
  expect(() => comment('a\nid: 9')).toThrow(InvariantError)
  expect(() => retry(1.5)).toThrow(InvariantError)
})

test('a cursor is decimal digits that make a safe integer', () => {
  expect(parseCursor('0')).toBe(0)
  expect(parseCursor('17')).toBe(17)
  expect(parseCursor(String(Number.MAX_SAFE_INTEGER))).toBe(Number.MAX_SAFE_INTEGER)
  for (const bad of ['', ' 1', '-1', '+1', '1.0', '1e3', '0x1', '١', '9007199254740992', '1\n']) {
    expect(parseCursor(bad), bad).toBeNull()
  }
})
