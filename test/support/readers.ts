import { type AgUiEvent, emptyFold, type Fold, foldEvents } from '@holdfast/protocol'
import { wait } from '@holdfast/std'
import { type Frame, request } from './api.ts'

/** What a reader at some point of a log finds itself in. */
export type Place = 'reasoning' | 'tool' | 'text' | 'takeover' | 'end' | 'elsewhere'

/**
 * The place of each cursor, from 0 to the log's last sequence. `takeover`: behind the lost attempt's
 * last event, and before the snapshot that withdraws what it said.
 */
export function placesOf(log: readonly AgUiEvent[]): Place[] {
  const places: Place[] = ['elsewhere']
  let fold = emptyFold()
  for (const event of log) {
    fold = foldEvents(fold, [event])
    places.push(placeOf(fold))
  }
  for (const { from, to } of takeoversOf(log)) places.fill('takeover', from, to + 1)
  return places
}

/** The cursors between what a lost attempt said last and the snapshot that withdraws it. */
export function takeoversOf(log: readonly AgUiEvent[]): { from: number; to: number }[] {
  return log.flatMap((event, at) => {
    if (!isLaterAttempt(event)) return []
    const length = log.slice(at).findIndex(({ type }) => type === 'MESSAGES_SNAPSHOT')
    if (length < 0) return []
    let from = at
    while (log[from - 1]?.type.endsWith('_END')) from -= 1
    return [{ from, to: at + length }]
  })
}

export function placeOf({ open, terminal }: Fold): Place {
  if (terminal) return 'end'
  const kinds = open.map(({ kind }) => kind)
  if (kinds.includes('reasoning_message')) return 'reasoning'
  if (kinds.includes('tool')) return 'tool'
  return kinds.includes('text') ? 'text' : 'elsewhere'
}

function isLaterAttempt(event: AgUiEvent): boolean {
  if (event.type !== 'CUSTOM' || event.name !== 'holdfast.attempt') return false
  return (event.value as { epoch: number }).epoch > 1
}

/** A reading without a cursor, taken apart: the prelude, where it stands in the log, and the rest. */
export function preludeOf(frames: readonly Frame[]): {
  prelude: AgUiEvent[]
  sequence: number
  rest: Frame[]
} {
  const length = frames.findIndex(({ id }) => id !== null) + 1
  return {
    prelude: frames.slice(0, length).map(({ event }) => event),
    sequence: frames[length - 1]?.id ?? -1,
    rest: frames.slice(length),
  }
}

/** The text that a log's events say, withdrawn or not. */
export function textOf(log: readonly AgUiEvent[]): string {
  return log.flatMap((event) => (event.type === 'TEXT_MESSAGE_CONTENT' ? event.delta : [])).join('')
}

/** The value of a process's metric, by its name with labels as Prometheus prints it. */
export async function metric(url: string, name: string): Promise<number> {
  const { body } = await request(`${url}/metrics`)
  const line = String(body['text'])
    .split('\n')
    .find((each) => each.startsWith(`${name} `))
  if (!line) throw new Error(`there is no metric ${name}`)
  return Number(line.slice(name.length + 1))
}

/** Looks until it holds; fails after `limitMs` and says what. */
export async function until(
  what: string,
  limitMs: number,
  holds: () => boolean | Promise<boolean>,
): Promise<void> {
  const late = AbortSignal.timeout(limitMs)
  while (!(await holds())) {
    if (late.aborted) throw new Error(`within ${limitMs} ms it did not come true that ${what}`)
    await wait(20)
  }
}
