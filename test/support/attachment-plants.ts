/** A message with bytes of its own, of a run that the plants break. */
export const IMAGE = [
  { type: 'image', source: { type: 'data', value: 'iVBORw0KGgo=', mimeType: 'image/png' } },
]

const CONVERSATION_OF_RUN = '(SELECT conversation_id FROM holdfast.runs WHERE id = $1)'
const OF_RUN = `conversation_id = ${CONVERSATION_OF_RUN}`

/** What breaks the rules of attachments; `$1` is the id of an ended run whose message is `IMAGE`. */
export const ATTACHMENT_PLANTS: readonly [invariant: string, of: 'ended', statement: string][] = [
  [
    'I8 what a user message refers to is there',
    'ended',
    `UPDATE holdfast.conversation_messages SET message =
       regexp_replace(message::text, '[0-9a-f]{64}', repeat('0', 64))::json WHERE run_id = $1 AND role = 'user'`,
  ],
  [
    'I8 what a user message refers to is there',
    'ended',
    `WITH gone AS (DELETE FROM holdfast.attachments WHERE ${OF_RUN})
     UPDATE holdfast.conversations SET attachment_bytes = 0 WHERE id = ${CONVERSATION_OF_RUN}`,
  ],
  [
    'I8 the bytes beside a conversation are counted',
    'ended',
    `UPDATE holdfast.conversations SET attachment_bytes = 7 WHERE id = ${CONVERSATION_OF_RUN}`,
  ],
  [
    'I20 an attachment belongs to the tenant of its conversation',
    'ended',
    `UPDATE holdfast.attachments SET tenant_id = 'other' WHERE ${OF_RUN}`,
  ],
]
