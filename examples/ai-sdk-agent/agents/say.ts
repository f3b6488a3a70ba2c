import { closing, type Run } from '@holdfast/agent-kit'
import type { TextStreamPart, ToolSet } from 'ai'

type Part = TextStreamPart<ToolSet>

/**
 * Says what comes from the AI SDK, each text and each thought as a message of its own. Tools show themselves when they
 * are executed.
 */
export async function say(run: Run, stream: AsyncIterable<Part>): Promise<void> {
  const parts = closing(stream, run.signal)
  for (let next = await parts.next(); !next.done; next = await parts.next()) {
    const part = next.value
    switch (part.type) {
      case 'text-start':
        await run.text(deltas(parts, 'text-delta', 'text-end'))
        break
      case 'reasoning-start':
        await run.reasoning(deltas(parts, 'reasoning-delta', 'reasoning-end'))
        break
      case 'finish':
        run.usage({
          inputTokens: part.totalUsage.inputTokens ?? 0,
          outputTokens: part.totalUsage.outputTokens ?? 0,
        })
        // A stream that was cut is none that has ended well.
        if (part.finishReason === 'error') throw new Error('the model ended with an error')
        break
      case 'error':
        throw new Error('the model failed', { cause: part.error })
      default:
        break
    }
  }
}

async function* deltas(
  parts: AsyncIterator<Part>,
  delta: 'text-delta' | 'reasoning-delta',
  end: 'text-end' | 'reasoning-end',
): AsyncGenerator<string> {
  for (let next = await parts.next(); !next.done; next = await parts.next()) {
    const part = next.value
    if (part.type === end) return
    if (part.type === 'error') throw new Error('the model failed', { cause: part.error })
    if (part.type === delta && 'text' in part) yield part.text
  }
}
