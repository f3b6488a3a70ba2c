import { randomUUID } from 'node:crypto'
import type { Message } from '@holdfast/protocol'
import { readEvents, request, type Sent, send } from './api.ts'

export type Part = { type: string; text?: string; source?: { type: string; value: string } }

/** A content part that brings its bytes along. */
export function part(bytes: Buffer, mimeType = 'image/png', more: object = {}) {
  const source = { type: 'data', value: bytes.toString('base64'), mimeType }
  return { type: 'image', source, ...more }
}

export const said = (text: string, ...parts: object[]) => [{ type: 'text', text }, ...parts]

export type Sender = ReturnType<typeof sender>

/** Somebody who sends messages with bytes and looks at what became of them. */
export function sender(url: string, headers: Record<string, string> = {}) {
  async function messagesOf(conversationId: string): Promise<Message[]> {
    const { body } = await request(`${url}/conversations/${conversationId}`, { headers })
    return (body['messages'] as { message: Message }[]).map(({ message }) => message)
  }
  return {
    headers,
    messagesOf,
    post(json: object) {
      return request(`${url}/runs`, { json: { clientTurnId: randomUUID(), ...json }, headers })
    },
    /** Sends, and waits for the end of the run. */
    async ended(message: unknown, more: Record<string, unknown> = {}): Promise<Sent> {
      const sent = await send(url, message, more, headers)
      await readEvents(url, sent.runId, { after: 0, headers })
      return sent
    },
    /** The references of a conversation's messages, in order. */
    async urlsOf(conversationId: string): Promise<string[]> {
      const messages = await messagesOf(conversationId)
      return messages.flatMap(({ content }) =>
        Array.isArray(content)
          ? (content as Part[]).flatMap(({ source }) => (source ? [source.value] : []))
          : [],
      )
    },
    async download(path: string, more: Record<string, string> = {}) {
      const response = await fetch(`${url}${path}`, { headers: { ...headers, ...more } })
      return { response, bytes: Buffer.from(await response.arrayBuffer()) }
    },
  }
}
