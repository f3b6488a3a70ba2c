import { asError, unlessAborted } from '@holdfast/std'
import { isCancellation } from './cancelled.ts'
import { together } from './failures.ts'
import { type Report, warn } from './report.ts'
import { inTime } from './resources.ts'

/**
 * A stream to be closed: any async iterable, or a function that makes one of a signal. The latter
 * is the surest: the signal aborts when the loop is left, so even a generator that sits in an
 * `await` ends at once.
 */
export type Source<T> = AsyncIterable<T> | ((signal: AbortSignal) => AsyncIterable<T>)

export type ClosingOptions = {
  /** How long the source may take to close before it is left behind; 2000. */
  closeMs?: number
  /** Hears of a source that does not close; a warning of the process when left out. */
  onReport?: (report: Report) => void
}

/**
 * Iterates a source and closes it before the loop is left, however that happens: at its end, by
 * `break`, by an error in the loop, and when the signal aborts, which then is thrown. A read that
 * is pending does not delay the close.
 *
 *     for await (const chunk of closing((signal) => model.stream(prompt, { signal }), scope.signal))
 */
export function closing<T>(
  source: Source<T>,
  signal: AbortSignal,
  { closeMs = 2000, onReport = warn }: ClosingOptions = {},
): AsyncIterableIterator<T, void> & AsyncDisposable {
  const leaving = new AbortController()
  let reader: Reader<T> | undefined
  let closed: Promise<void> | undefined

  async function close() {
    leaving.abort(signal.reason)
    // Also a stream that was never read is open.
    if (typeof source !== 'function') reader ??= readerOf(source)
    const stuck = reader && !(await inTime(reader.close, closeMs))
    if (stuck) onReport({ kind: 'dispose_stuck', scope: 'stream', ms: closeMs })
  }
  /** The first who closes does it; all who close wait for it. */
  function end(): Promise<void> {
    closed ??= close()
    return closed
  }

  return {
    async next() {
      if (closed) return OVER
      try {
        signal.throwIfAborted()
        reader ??= readerOf(typeof source === 'function' ? source(leaving.signal) : source)
        const read = await unlessAborted(reader.next(), signal)
        if (!read.done) return read
        closed ??= Promise.resolve()
        return OVER
      } catch (error) {
        // Closed by somebody else, which is why the read failed.
        if (closed) return OVER
        await end().catch((again: unknown) => {
          if (!isCancellation(again, leaving.signal))
            throw together([asError(error), asError(again)])
        })
        throw error
      }
    },
    async return() {
      await end()
      return OVER
    },
    [Symbol.asyncIterator]() {
      return this
    },
    [Symbol.asyncDispose]: end,
  }
}

const OVER: IteratorReturnResult<void> = { done: true, value: undefined }

type Reader<T> = { next(): Promise<IteratorResult<T, unknown>>; close(): unknown }

function readerOf<T>(stream: AsyncIterable<T>): Reader<T> {
  // Its iterator would wait for a pending read before it closes.
  if (stream instanceof ReadableStream) return webReader(stream)
  const iterator = stream[Symbol.asyncIterator]()
  return {
    next: () => iterator.next(),
    async close() {
      interrupt(stream)
      await iterator.return?.()
    },
  }
}

function webReader<T>(stream: ReadableStream<T>): Reader<T> {
  const reader = stream.getReader()
  return {
    async next() {
      const { done, value } = await reader.read()
      return done ? { done, value } : { done, value }
    },
    close: () => reader.cancel(),
  }
}

/**
 * What makes a pending read end: `destroy` of Node's streams, `abort` of SDKs' streams or of their
 * controller. A generator has none of them; its `return` waits for what it awaits.
 */
function interrupt(stream: object): void {
  if ('destroy' in stream && typeof stream.destroy === 'function') stream.destroy()
  else if ('abort' in stream && typeof stream.abort === 'function') stream.abort()
  else if ('controller' in stream && stream.controller instanceof AbortController) {
    stream.controller.abort()
  }
}
