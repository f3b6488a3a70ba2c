/** Who must act on a failure; the edges (HTTP, retry policy) map kinds, never messages. */
export type FailureKind =
  | 'invalid'
  | 'unauthorized'
  | 'not_found'
  | 'conflict'
  | 'gone'
  | 'too_large'
  | 'unsupported_media'
  | 'unprocessable'
  | 'rate_limited'
  | 'unavailable'
  | 'not_implemented'
  | 'fenced'
  | 'internal'

/** The world said no. `code` is stable and public, `message` is for people, `details` go to the caller. */
export class HoldfastError extends Error {
  override readonly name = 'HoldfastError'
  readonly code: string
  readonly kind: FailureKind
  readonly details: Readonly<Record<string, unknown>>

  constructor(
    kind: FailureKind,
    code: string,
    message: string,
    options: { cause?: unknown; details?: Record<string, unknown> } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause })
    this.kind = kind
    this.code = code
    this.details = options.details ?? {}
  }
}

/** Any thrown value as an Error, so that it can be logged and wrapped. */
export function asError(value: unknown): Error {
  return value instanceof Error ? value : new Error(String(value))
}
