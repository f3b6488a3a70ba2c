import { createHmac } from 'node:crypto'

/**
 * The headers of Standard Webhooks 1.0. The id is the notification's, the same at every attempt; the time is the
 * attempt's, so that receivers can refuse what is replayed. Without a key there is no signature.
 */
export function webhookHeaders(
  key: Buffer | null,
  message: { readonly id: string; readonly body: string },
  atMs: number,
): Record<string, string> {
  const timestamp = `${Math.floor(atMs / 1000)}`
  const headers = { 'webhook-id': message.id, 'webhook-timestamp': timestamp }
  if (!key) return headers
  const content = `${message.id}.${timestamp}.${message.body}`
  const signature = createHmac('sha256', key).update(content).digest('base64')
  return { ...headers, 'webhook-signature': `v1,${signature}` }
}
