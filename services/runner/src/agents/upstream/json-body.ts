import { AgentFailure } from '../agent.ts'

/** The whole body as JSON. @throws AgentFailure limit_exceeded, upstream_error */
export async function jsonOf(body: AsyncIterable<Uint8Array>, bytesMax: number): Promise<unknown> {
  const parts: Uint8Array[] = []
  let size = 0
  for await (const part of body) {
    size += part.byteLength
    if (size > bytesMax) {
      throw new AgentFailure('limit_exceeded', 'the answer of the upstream is too large')
    }
    parts.push(part)
  }
  try {
    return JSON.parse(Buffer.concat(parts).toString('utf8'))
  } catch (error) {
    throw new AgentFailure('upstream_error', 'the upstream sent a body that is not JSON', {
      cause: error,
    })
  }
}
