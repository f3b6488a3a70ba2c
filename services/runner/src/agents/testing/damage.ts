import fc from 'fast-check'
import type { Script } from './scripted-upstream.ts'
import type { NamedCase } from './upstream-cases.ts'

/** A body and how it travels. */
export type Wire = {
  readonly body: Uint8Array
  /** Where it is cut, as shares of its length. */
  readonly cuts: readonly number[]
  readonly pauseMs: number
  readonly ending: NonNullable<Script['ending']>
}

type Damage = (body: Uint8Array) => Uint8Array

/** Bodies of the corpus as they are, damaged, or grown together, and bodies of noise. */
export function damagedBodies(cases: readonly NamedCase[]): fc.Arbitrary<Uint8Array> {
  const one = fc.constantFrom(...cases).map(({ bytes }) => bytes)
  const damaged = fc
    .tuple(one, fc.array(damage(one), { maxLength: 4 }))
    .map(([body, damages]) => damages.reduce<Uint8Array>((before, apply) => apply(before), body))
  return fc.oneof(
    { weight: 12, arbitrary: damaged },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 300 }) },
    { weight: 1, arbitrary: noise() },
  )
}

export function wires(bodies: fc.Arbitrary<Uint8Array>): fc.Arbitrary<Wire> {
  return fc.record({
    body: bodies,
    cuts: fc.array(share(), { maxLength: 6 }),
    pauseMs: fc.constantFrom(0, 0, 1, 5, 20),
    ending: fc.constantFrom('end', 'end', 'end', 'cut', 'reset', 'hang', 'keep-alive'),
  })
}

export function partsOf({ body, cuts }: Wire): Uint8Array[] {
  const ends = [...cuts.map((cut) => at(body, cut)), body.length].sort((one, other) => one - other)
  return ends.map((end, index) => body.subarray(ends[index - 1] ?? 0, end))
}

/** What goes wrong on a way: bytes that change, vanish, come twice, or come from elsewhere. */
function damage(other: fc.Arbitrary<Uint8Array>): fc.Arbitrary<Damage> {
  const flipped = fc.tuple(share(), fc.nat(255)).map(
    ([where, byte]): Damage =>
      (body) => {
        const copy = Buffer.from(body)
        if (copy.length > 0) copy[Math.min(at(copy, where), copy.length - 1)] = byte
        return copy
      },
  )
  const cut = share().map(
    (where): Damage =>
      (body) =>
        body.subarray(0, at(body, where)),
  )
  const replaced = fc
    .tuple(
      share(),
      share(),
      fc.oneof(fc.uint8Array({ maxLength: 8 }), fc.constant('\n\n'), fc.constant('')),
    )
    .map(
      ([from, to, put]): Damage =>
        (body) => {
          const [start, end] = [at(body, Math.min(from, to)), at(body, Math.max(from, to))]
          return Buffer.concat([body.subarray(0, start), Buffer.from(put), body.subarray(end)])
        },
    )
  const spliced = fc.tuple(share(), share(), other).map(
    ([where, from, more]): Damage =>
      (body) =>
        Buffer.concat([body.subarray(0, at(body, where)), more.subarray(at(more, from))]),
  )
  const shuffled = fc.tuple(share(), share()).map(
    ([from, to]): Damage =>
      (body) => {
        const blocks = Buffer.from(body).toString('latin1').split('\n\n')
        const [moved] = blocks.splice(Math.floor(from * blocks.length), 1)
        if (moved !== undefined)
          blocks.splice(Math.floor(to * (blocks.length + 1)), 0, moved, moved)
        return Buffer.from(blocks.join('\n\n'), 'latin1')
      },
  )
  return fc.oneof(flipped, cut, replaced, spliced, shuffled)
}

/** Words that mean something to readers, in an order that means nothing. */
function noise(): fc.Arbitrary<Uint8Array> {
  const words = [
    'data:',
    ' ',
    '\n',
    '\n\n',
    '\r',
    ':',
    '{',
    '}',
    '"',
    '[DONE]',
    'event: ping\n',
    '\ufeff',
    '\0',
  ]
  const values = ['{"type":"RUN_FINISHED"}', '{"choices":[{"finish_reason":"stop"}]}', 'null', '[]']
  return fc
    .array(fc.constantFrom(...words, ...values), { maxLength: 60 })
    .map((parts) => Buffer.from(parts.join('')))
}

function share(): fc.Arbitrary<number> {
  return fc.double({ min: 0, max: 1, noNaN: true })
}

function at(body: Uint8Array, where: number): number {
  return Math.floor(where * body.length)
}
