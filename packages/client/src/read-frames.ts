import { createParser } from 'eventsource-parser'

export type Frame = { id: string | undefined; data: string }

/**
 * The frames of one response, as many at a time as its bytes bring. Ends where the response
 * ends; a frame that was cut there is left out, as if it had never been sent.
 */
export async function* readFrames(
  body: ReadableStream<Uint8Array>,
  heard: { onByte(): void; onRetry(ms: number): void },
): AsyncGenerator<Frame[], void, undefined> {
  let frames: Frame[] = []
  const parser = createParser({
    onEvent: ({ id, data }) => frames.push({ id, data }),
    onRetry: (ms) => heard.onRetry(ms),
  })
  const decoder = new TextDecoder()
  const reader = body.getReader()
  try {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return
      heard.onByte()
      parser.feed(decoder.decode(value, { stream: true }))
      if (frames.length > 0) yield frames
      frames = []
    }
  } finally {
    reader.releaseLock()
  }
}
