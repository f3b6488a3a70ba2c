import type { FastifyRequest } from 'fastify'
import { expect, test } from 'vitest'
import { cursorOf } from './events.ts'

const request = (header: string | undefined, after?: string | string[]) =>
  ({
    headers: header === undefined ? {} : { 'last-event-id': header },
    query: after === undefined ? {} : { after },
  }) as unknown as FastifyRequest

test.each([
  [undefined, undefined, undefined],
  ['', undefined, undefined],
  [undefined, '', undefined],
  ['7', undefined, 7],
  [undefined, '7', 7],
  ['7', '3', 7],
  ['', '3', 3],
  ['0', '3', 0],
])('Last-Event-ID %j and after=%j mean %j: the header wins', (header, after, cursor) => {
  expect(cursorOf(request(header, after))).toBe(cursor)
})

test.each(['-1', '1.5', 'abc', '1e3', ' 1', '0x1', '9007199254740993', '٣', '1,2'])(
  '%j is refused',
  (value) => {
    expect(() => cursorOf(request(value))).toThrow('malformed')
    expect(() => cursorOf(request(undefined, value))).toThrow('malformed')
    expect(() => cursorOf(request(value, '1'))).toThrow('malformed')
  },
)
