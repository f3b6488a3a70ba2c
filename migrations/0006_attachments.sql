-- What callers send along with their messages. The key begins with the conversation: equal bytes of another one,
-- whoever sent them, are another row, so that nobody can learn from an answer or its time what others have.
CREATE TABLE holdfast.attachments (
  conversation_id uuid NOT NULL REFERENCES holdfast.conversations (id),
  id              text NOT NULL CHECK (id ~ '^[0-9a-f]{64}$'),  -- SHA-256 of media type, NUL and bytes
  tenant_id       text NOT NULL,
  media_type      text NOT NULL,
  name            text,                                         -- as the first sender called it
  bytes           bytea NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (conversation_id, id)
);
-- Pictures, sound and documents are compressed already.
ALTER TABLE holdfast.attachments ALTER COLUMN bytes SET STORAGE EXTERNAL;

ALTER TABLE holdfast.conversations ADD COLUMN attachment_bytes bigint NOT NULL DEFAULT 0;
