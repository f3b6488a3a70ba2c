import { connect } from '../support/sql.ts'

/**
 * What that many accepted turns leave behind, each in a conversation of its own and due at once. By SQL, because a
 * queue of 200,000 is not what is measured.
 */
const FILL = `
  WITH made AS MATERIALIZED (
    SELECT uuidv7() AS run, uuidv7() AS conversation, n,
      json_build_object('id', 'm' || n, 'role', 'user', 'content', $2::text) AS message
    FROM generate_series(1, $1::int) AS n),
  conversation AS (
    INSERT INTO holdfast.conversations (id, tenant_id, user_id, external_id, next_turn, bytes)
    SELECT conversation, 'dev', 'dev', conversation::text, 2, octet_length(message::text) FROM made),
  turn AS (
    INSERT INTO holdfast.client_turns (tenant_id, user_id, client_turn_id, run_id, fingerprint)
    SELECT 'dev', 'dev', run::text, run, '' FROM made),
  input AS (
    INSERT INTO holdfast.run_inputs (run_id, tenant_id, thread_id, wire_run_id)
    SELECT run, 'dev', conversation::text, run::text FROM made),
  said AS (
    INSERT INTO holdfast.conversation_messages
      (conversation_id, turn, index, tenant_id, run_id, message_id, role, status, message)
    SELECT conversation, 1, 0, 'dev', run, 'm' || n, 'user', 'complete', message FROM made),
  event AS (
    INSERT INTO holdfast.run_events (run_id, sequence, epoch, tenant_id, type, payload)
    SELECT run, 1, 0, 'dev', 'RUN_STARTED', json_build_object('type', 'RUN_STARTED', 'threadId', conversation,
      'runId', run, 'input', json_build_object('threadId', conversation, 'runId', run,
        'messages', json_build_array(message), 'tools', '[]'::json, 'context', '[]'::json)) FROM made)
  INSERT INTO holdfast.runs (id, tenant_id, user_id, conversation_id, turn, agent, max_attempts, on_lost,
    last_sequence, max_queue_ms, deadline_ms, queue_until)
  SELECT run, 'dev', 'dev', conversation, 1, $3, 3, 'restart', 1, 86400000, 600000,
    clock_timestamp() + interval '1 day' FROM made`

const ROWS_PER_STATEMENT = 20_000

export async function fillQueue(
  databaseUrl: string,
  runs: number,
  { message, agent = 'demo' }: { message: string; agent?: string },
): Promise<void> {
  await inPieces(databaseUrl, runs, FILL, [message, agent])
}

async function inPieces(databaseUrl: string, count: number, statement: string, values: string[]) {
  await using sql = await connect(databaseUrl)
  for (let left = count; left > 0; left -= ROWS_PER_STATEMENT) {
    await sql(statement, [Math.min(left, ROWS_PER_STATEMENT), ...values])
  }
  await sql('VACUUM ANALYZE')
  await sql('CHECKPOINT')
}
