import { EventType } from '@ag-ui/core'
import * as fc from 'fast-check'
import { expect, test } from 'vitest'
import type { AgUiEvent } from './event.ts'
import { joinSurrogates, sanitize, withoutNulls } from './sanitize.ts'

const anyText = fc.string({ unit: fc.integer({ min: 0, max: 0xffff }).map(String.fromCharCode) })
const { tree } = fc.letrec<{ tree: unknown }>((again) => ({
  tree: fc.oneof(
    { depthSize: 'small' },
    anyText,
    fc.constantFrom('\u0000', 'a\ud83d', '\udc00b', '😀', null, 1, true),
    fc.array(again('tree')),
    fc.dictionary(anyText, again('tree')),
  ),
}))

test('no string and no key keeps a NUL or a lone surrogate, and the shape stays', () => {
  fc.assert(
    fc.property(tree, (value) => {
      const before = structuredClone(value)
      const json = JSON.stringify(sanitize(value))
      // JSON escapes exactly what is not well formed, and NUL.
      expect(json).not.toMatch(/(?<!\\)(\\\\)*\\u(0000|d[89a-f])/i)
      expect(value).toEqual(before)
      expect(sanitize(sanitize(value))).toEqual(sanitize(value))
    }),
    { seed: 5, numRuns: 500 },
  )
})

test('what is clean comes back as it is', () => {
  const value = { text: 'ok 😀', list: [{ n: null }] }
  expect(sanitize(value)).toBe(value)
})

test('each bad character is replaced by one U+FFFD', () => {
  expect(sanitize({ 'k\u0000': ['a\ud83db', '\ude00', '😀'] })).toEqual({
    'k\uFFFD': ['a\uFFFDb', '\uFFFD', '😀'],
  })
})

test('optional nulls and the raw event go, null payloads stay', () => {
  const wild: unknown = {
    type: 'TEXT_MESSAGE_START',
    messageId: 'm',
    role: null,
    subagentRunId: null,
    rawEvent: { secret: 1 },
  }
  expect(withoutNulls(wild as AgUiEvent)).toEqual({ type: 'TEXT_MESSAGE_START', messageId: 'm' })
  const state: AgUiEvent = { type: EventType.STATE_SNAPSHOT, snapshot: null }
  expect(withoutNulls(state)).toEqual(state)
  const note: AgUiEvent = { type: EventType.CUSTOM, name: 'x', value: null }
  expect(withoutNulls(note)).toEqual(note)
})

test('a text cut anywhere, also inside surrogate pairs, comes out whole and in order', () => {
  fc.assert(
    fc.property(
      fc.string({ unit: 'binary' }),
      fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1 }),
      (text, sizes) => {
        const joiner = joinSurrogates()
        let out = ''
        for (let at = 0, turn = 0; at < text.length; turn += 1) {
          const size = sizes[turn % sizes.length] ?? 1
          const piece = joiner.push('m', text.slice(at, at + size))
          expect(piece.isWellFormed()).toBe(true)
          out += piece
          at += size
        }
        expect(out + joiner.end('m')).toBe(text)
      },
    ),
    { seed: 6, numRuns: 300 },
  )
})

test('a half pair waits for its own message, and ends as U+FFFD if nothing comes', () => {
  const joiner = joinSurrogates()
  expect(joiner.push('a', 'x\ud83d')).toBe('x')
  expect(joiner.push('b', '\ude00')).toBe('\ude00')
  expect(joiner.push('a', '')).toBe('')
  expect(joiner.push('a', '\ude00!')).toBe('😀!')
  expect(joiner.push('a', '\ud83d')).toBe('')
  expect(joiner.end('a')).toBe('\uFFFD')
  expect(joiner.end('a')).toBe('')
})
