import { type AgUiEvent, emptyFold, foldEvents } from '@holdfast/protocol'
import { wait } from '@holdfast/std'
import { type Frame, request } from './api.ts'

/** What a reader at some point of a log finds itself in. */
export type Place = 'reasoning' | 'tool' | 'text' | 'takeover' | 'end' | 'elsewhere'

/**
 * The place of each cursor 0..n of a log. `takeover`: behind the lost attempt's last event, and
 * before the snapshot that withdraws what it said.
 */
export function placesOf(log: readonly AgUiEvent[]): Place[] {
  const places: Place[] = ['elsewhere']
  let fold = emptyFold()
  log.forEach((event, at) => {
    fold = foldEvents(fold, [event])
    places.push(placeOf(fold))
    if (!beginsAttemptAgain(event)) return
    let from = at
    while (log[from - 1]?.type.endsWith('_END')) from -= 1
    const snapshot = log.findIndex(({ type }, k) => k > at && type === 'MESSAGES_SNAPSHOT')
    for (let cursor = from; cursor <= snapshot; cursor += 1) withdrawn.add(cursor)
  })
  return places.map((place, cursor) => (withdrawn.has(cursor) ? 'takeover' : place))
}
