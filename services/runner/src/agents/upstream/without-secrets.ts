import { AgentFailure } from '../agent.ts'

/** Shorter ones are no secrets, and would black out half of a log. */
const SECRET_CHARS_MIN = 8

/**
 * A failure as it may be logged: servers like to repeat the key that they refuse. All that the operator wrote into the
 * request's headers is taken out of what the server said.
 */
export function withoutSecrets(error: unknown, headers: Readonly<Record<string, string>>): unknown {
  if (!(error instanceof AgentFailure)) return error
  const secrets = Object.entries(headers)
    .filter(([name]) => !PLAIN.has(name))
    .flatMap(([, value]) => [value, value.replace(/^\w+ +/, '')])
    .filter((secret) => secret.length >= SECRET_CHARS_MIN)
  const { cause } = error
  const said = cause instanceof Error ? cause.message : ''
  if (!secrets.some((secret) => error.message.includes(secret) || said.includes(secret)))
    return error
  const clean = (text: string) =>
    secrets.reduce((left, secret) => left.replaceAll(secret, '[redacted]'), text)
  return new AgentFailure(error.code, clean(error.message), {
    ...error,
    cause: said === '' ? undefined : new Error(clean(said)),
  })
}

/** What the protocol itself needs. */
const PLAIN: ReadonlySet<string> = new Set([
  'accept',
  'accept-encoding',
  'content-type',
  'idempotency-key',
])
