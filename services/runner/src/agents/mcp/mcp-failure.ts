import { asError } from '@holdfast/std'

/**
 * `refused`: the server has not taken the request; `lost`: nobody knows what became of it; `answered`: the server said
 * what was wrong; `timeout`: its time was over. The message stays in the log.
 */
export class McpFailure extends Error {
  override readonly name = 'McpFailure'
  readonly kind: 'refused' | 'lost' | 'answered' | 'timeout'

  constructor(kind: McpFailure['kind'], cause: unknown) {
    super(`an MCP request failed (${kind}): ${asError(cause).message}`, { cause })
    this.kind = kind
  }
}
