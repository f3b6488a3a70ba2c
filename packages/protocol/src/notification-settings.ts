import * as z from 'zod'

export const DeliveryState = z.enum(['pending', 'delivered', 'dead'])
export type DeliveryState = z.infer<typeof DeliveryState>

/** What an index of endpoints can hold. */
const ENDPOINT_CHARS_MAX = 2048

/** The variables that say who is told of ended runs. BFF and runner read the same ones and refuse the same values. */
export const NotificationVariables = z.object({
  WEBHOOK_URLS: list()
    .refine((entries) => entries.every((entry) => asEndpoint(entry) !== null), {
      error: 'http(s) URLs without credentials, comma-separated',
      abort: true,
    })
    .transform((entries) => [...new Set(entries.flatMap((entry) => asEndpoint(entry) ?? []))]),
  WEBHOOK_SECRET: z
    .string()
    .regex(
      /^whsec_([A-Za-z0-9+/]{4}){4,}([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/,
      'whsec_ followed by base64',
    )
    .optional(),
  NOTIFY_ALLOW: list()
    .refine((entries) => entries.every(isHost), {
      error: 'host names, optionally with a port, comma-separated',
    })
    .transform((entries) => entries.map((entry) => entry.toLowerCase())),
})

/** A URL as it is told, in one spelling; null if it is none that can be told. */
export function asEndpoint(text: string): string | null {
  const url = URL.parse(text)
  if (!url || !/^https?:$/.test(url.protocol) || url.username || url.password) return null
  url.hash = ''
  return url.href.length <= ENDPOINT_CHARS_MAX ? url.href : null
}

/** Whether NOTIFY_ALLOW names the host of this URL, with its port or without any. */
export function isNotifyAllowed(endpoint: string, notifyAllow: readonly string[]): boolean {
  const { protocol, hostname, port } = new URL(endpoint)
  const actualPort = port || (protocol === 'https:' ? '443' : '80')
  return notifyAllow.includes(hostname) || notifyAllow.includes(`${hostname}:${actualPort}`)
}

function list() {
  return z
    .string()
    .default('')
    .transform((text) =>
      text
        .split(',')
        .map((entry) => entry.trim())
        .filter(Boolean),
    )
}

function isHost(value: string): boolean {
  return /^(\[[0-9a-f:]+\]|[a-z0-9._-]+)(:\d{1,5})?$/i.test(value)
}
