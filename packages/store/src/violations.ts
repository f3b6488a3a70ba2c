import { sql } from 'kysely'
import { rows, type Store } from './store.ts'

/** What an invariant's query found. A healthy database gives none, at any moment. */
export type Violation = { readonly invariant: string; readonly rows: readonly unknown[] }

/**
 * Asks the database about every invariant that it can see. Read-only; each query must return no rows.
 * Meant for tests after each scenario and for operators on a live database.
 */
export async function violations(store: Store): Promise<Violation[]> {
  const found: Violation[] = []
  for (const [invariant, query] of Object.entries(QUERIES)) {
    const broken = await rows(store, sql<unknown>`${sql.raw(query)} LIMIT 20`)
    if (broken.length) found.push({ invariant, rows: broken })
  }
  return found
}

const ENDED = `('succeeded', 'failed', 'stopped')`
const TERMINAL = `('RUN_FINISHED', 'RUN_ERROR')`

/** One query an invariant, named `I<number> <sentence>`. */
export const QUERIES: Readonly<Record<string, string>> = {
  'I1 no event carries an epoch that its run has not reached': `
    SELECT e.run_id, e.sequence, e.epoch, r.execution_epoch FROM holdfast.run_events e
    JOIN holdfast.runs r ON r.id = e.run_id WHERE e.epoch > r.execution_epoch`,
  'I1 epochs never fall along a log': `
    SELECT run_id, sequence, epoch, before FROM (
      SELECT run_id, sequence, epoch, lag(epoch) OVER (PARTITION BY run_id ORDER BY sequence) AS before
      FROM holdfast.run_events) e WHERE epoch < before`,
  'I1 what an attempt wrote stands between its claim and the next one': `
    SELECT e.run_id, e.sequence, e.epoch FROM holdfast.run_events e
    JOIN holdfast.run_attempts a ON a.run_id = e.run_id AND a.epoch > e.epoch AND e.sequence > a.base_sequence`,
  'I1 an artifact carries the epoch that ended its run': `
    SELECT a.run_id, a.name, a.epoch, r.execution_epoch FROM holdfast.artifacts a
    JOIN holdfast.runs r ON r.id = a.run_id WHERE a.epoch <> r.execution_epoch`,
  'I4 every running run has a lease and an owner': `
    SELECT id FROM holdfast.runs WHERE state = 'running' AND (lease_until IS NULL OR owner IS NULL)`,
  'I4 every running run has the one open attempt of its epoch': `
    SELECT r.id, r.execution_epoch FROM holdfast.runs r WHERE r.state = 'running' AND 1 <> (
      SELECT count(*) FROM holdfast.run_attempts a
      WHERE a.run_id = r.id AND a.ended_at IS NULL AND a.epoch = r.execution_epoch)`,
  'I4 only the attempt of a running run is open': `
    SELECT a.run_id, a.epoch FROM holdfast.run_attempts a JOIN holdfast.runs r ON r.id = a.run_id
    WHERE a.ended_at IS NULL AND (r.state <> 'running' OR a.epoch <> r.execution_epoch)`,
  'I4 a parked turn stands behind an unfinished one': `
    SELECT p.id FROM holdfast.runs p WHERE p.state = 'queued' AND p.available_at = 'infinity' AND NOT EXISTS (
      SELECT FROM holdfast.runs b WHERE b.conversation_id = p.conversation_id AND b.turn < p.turn
        AND b.state IN ('queued', 'running'))`,
  'I4 a queued run waits with a time limit unless it is parked': `
    SELECT id FROM holdfast.runs WHERE state = 'queued' AND available_at <> 'infinity' AND queue_until IS NULL`,
  'I5 sequences are 1 to n without a gap': `
    SELECT r.id, r.last_sequence, e.n, e.low, e.high FROM holdfast.runs r
    JOIN (SELECT run_id, count(*) AS n, min(sequence) AS low, max(sequence) AS high
          FROM holdfast.run_events GROUP BY run_id) e ON e.run_id = r.id
    WHERE e.high <> r.last_sequence OR e.n <> e.high - e.low + 1`,
  'I5 no event stands without its run': `
    SELECT e.run_id, min(e.sequence) FROM holdfast.run_events e
    WHERE NOT EXISTS (SELECT FROM holdfast.runs r WHERE r.id = e.run_id) GROUP BY e.run_id`,
  'I6 an ended run has exactly one terminal event': `
    SELECT r.id, r.state FROM holdfast.runs r WHERE r.state IN ${ENDED}
      AND EXISTS (SELECT FROM holdfast.run_events e WHERE e.run_id = r.id)
      AND 1 <> (SELECT count(*) FROM holdfast.run_events e WHERE e.run_id = r.id AND e.type IN ${TERMINAL})`,
  'I6 a terminal event is the last of its log and its run has ended': `
    SELECT e.run_id, e.sequence, r.last_sequence, r.state FROM holdfast.run_events e
    JOIN holdfast.runs r ON r.id = e.run_id
    WHERE e.type IN ${TERMINAL} AND (e.sequence <> r.last_sequence OR r.state NOT IN ${ENDED})`,
  'I6 state, outcome and terminal event say the same': `
    SELECT r.id, r.state, r.outcome, x.terminal FROM holdfast.runs r
    LEFT JOIN holdfast.run_results x ON x.run_id = r.id
    WHERE r.state IN ${ENDED} AND (x.terminal IS NULL
      OR (r.state = 'failed') <> (x.terminal ->> 'type' = 'RUN_ERROR')
      OR (r.state = 'failed') <> (r.outcome = 'error')
      OR (r.state = 'stopped') <> (r.outcome = 'cancelled')
      OR (r.state <> 'failed' AND coalesce(x.terminal -> 'outcome' ->> 'type', 'success') <> r.outcome))`,
  'I8 every log begins with RUN_STARTED': `
    SELECT run_id, type FROM holdfast.run_events WHERE sequence = 1 AND type <> 'RUN_STARTED'`,
  'I8 the messages of a turn are numbered without a gap': `
    SELECT conversation_id, turn, count(*), min(index), max(index) FROM holdfast.conversation_messages
    GROUP BY conversation_id, turn HAVING min(index) <> 0 OR max(index) <> count(*) - 1`,
  'I8 a run that has not ended has stored what its turn brought only': `
    SELECT r.id, m.index FROM holdfast.runs r JOIN holdfast.conversation_messages m ON m.run_id = r.id
    WHERE r.state IN ('queued', 'running') AND m.role NOT IN ('user', 'tool')`,
  'I8 the saved fold is not ahead of its log': `
    SELECT f.run_id, f.sequence, r.last_sequence FROM holdfast.run_folds f JOIN holdfast.runs r ON r.id = f.run_id
    WHERE f.sequence > r.last_sequence OR f.epoch > r.execution_epoch`,
  'I8 what a user message refers to is there': `
    SELECT m.conversation_id, m.turn, part -> 'source' ->> 'value' AS url FROM holdfast.conversation_messages m
    CROSS JOIN LATERAL json_array_elements(
      CASE WHEN json_typeof(m.message -> 'content') = 'array' THEN m.message -> 'content' ELSE '[]' END) AS part
    WHERE m.role = 'user' AND part -> 'source' ->> 'value' ~ '^/conversations/[^/]+/attachments/[0-9a-f]{64}$'
      AND NOT EXISTS (SELECT FROM holdfast.attachments a WHERE a.conversation_id = m.conversation_id
        AND part -> 'source' ->> 'value' = '/conversations/' || a.conversation_id || '/attachments/' || a.id)`,
  'I8 the bytes beside a conversation are counted': `
    SELECT c.id, c.attachment_bytes, a.bytes FROM holdfast.conversations c
    LEFT JOIN (SELECT conversation_id, sum(octet_length(bytes)) AS bytes
               FROM holdfast.attachments GROUP BY conversation_id) a ON a.conversation_id = c.id
    WHERE c.attachment_bytes <> coalesce(a.bytes, 0)`,
  'I10 an ended run keeps neither fold nor owner': `
    SELECT r.id FROM holdfast.runs r LEFT JOIN holdfast.run_folds f ON f.run_id = r.id
    WHERE r.state IN ${ENDED} AND (f.run_id IS NOT NULL OR r.owner IS NOT NULL OR r.lease_until IS NOT NULL)`,
  'I10 an artifact belongs to a run that has ended': `
    SELECT a.run_id, a.name FROM holdfast.artifacts a LEFT JOIN holdfast.runs r ON r.id = a.run_id
    WHERE r.id IS NULL OR r.state NOT IN ${ENDED}`,
  'I12 every stored tool call of a stopped or failed run is answered': `
    SELECT m.run_id, call ->> 'id' AS tool_call_id FROM holdfast.conversation_messages m
    JOIN holdfast.runs r ON r.id = m.run_id AND r.state IN ('stopped', 'failed')
    CROSS JOIN LATERAL json_array_elements(m.message -> 'toolCalls') AS call
    WHERE m.role = 'assistant' AND NOT EXISTS (
      SELECT FROM holdfast.conversation_messages t WHERE t.conversation_id = m.conversation_id
        AND t.role = 'tool' AND t.message ->> 'toolCallId' = call ->> 'id')`,
  'I12 a queued run has nothing open': `
    SELECT r.id, f.fold -> 'open' AS open FROM holdfast.runs r JOIN holdfast.run_folds f ON f.run_id = r.id
    WHERE r.state = 'queued' AND f.sequence = r.last_sequence AND json_array_length(f.fold -> 'open') > 0`,
  'I16 no attempt was spent that was not claimed': `
    SELECT id, attempts_used, execution_epoch FROM holdfast.runs
    WHERE attempts_used > execution_epoch OR attempts_used < 0 OR attempts_used > max_attempts`,
  'I16 the record of a step keeps to the epochs of its run': `
    SELECT s.run_id, s.step_key, s.intent_epoch, s.outcome_epoch, r.execution_epoch FROM holdfast.run_steps s
    LEFT JOIN holdfast.runs r ON r.id = s.run_id
    WHERE r.id IS NULL OR s.intent_epoch > r.execution_epoch OR s.outcome_epoch > r.execution_epoch
      OR s.outcome_epoch < s.intent_epoch OR (s.outcome IS NULL) <> (s.outcome_epoch IS NULL)`,
  'I16 one step of a run is one effect outside': `
    SELECT run_id, idempotency_key, count(*) FROM holdfast.run_steps WHERE idempotency_key <> run_id::text
    GROUP BY run_id, idempotency_key HAVING count(*) > 1`,
  'I16 no run has succeeded with an effect in doubt that must not be repeated': `
    SELECT s.run_id, s.step_key, s.policy FROM holdfast.run_steps s JOIN holdfast.runs r ON r.id = s.run_id
    WHERE r.state = 'succeeded' AND s.outcome IS NULL AND s.policy <> 'retry'`,
  'I16 a step is known by the same key to every attempt': `
    SELECT run_id, step_key, idempotency_key FROM holdfast.run_steps
    WHERE left(idempotency_key, 36) <> run_id::text`,
  'I1 a checkpoint and a span keep to the epochs of their run': `
    SELECT c.run_id, c.epoch, c.sequence FROM holdfast.run_checkpoints c LEFT JOIN holdfast.runs r ON r.id = c.run_id
    WHERE r.id IS NULL OR c.epoch > r.execution_epoch OR c.sequence > r.last_sequence
    UNION ALL
    SELECT p.run_id, p.epoch, NULL FROM holdfast.run_spans p LEFT JOIN holdfast.runs r ON r.id = p.run_id
    WHERE r.id IS NULL OR p.epoch > r.execution_epoch`,
  'I17 every ended run of a conversation that is there has one notification': `
    SELECT r.id, r.state FROM holdfast.runs r
    JOIN holdfast.conversations c ON c.id = r.conversation_id AND c.deleted_at IS NULL
    WHERE r.state IN ${ENDED} AND NOT EXISTS (
      SELECT FROM holdfast.outbox o WHERE o.run_id = r.id AND o.type = 'run.' || r.state)`,
  'I17 no run is notified that has not ended': `
    SELECT o.run_id, o.type FROM holdfast.outbox o JOIN holdfast.runs r ON r.id = o.run_id
    WHERE r.state NOT IN ${ENDED}`,
  'I17 a delivery has its notification, whose endpoints were decided': `
    SELECT d.event_id, d.endpoint FROM holdfast.deliveries d
    LEFT JOIN holdfast.outbox o ON o.event_id = d.event_id
    WHERE o.event_id IS NULL OR o.expanded_at IS NULL`,
  'I17 a delivery is due exactly while it is pending': `
    SELECT event_id, endpoint, state FROM holdfast.deliveries
    WHERE (state = 'pending') <> (next_attempt_at IS NOT NULL)`,
  'I17 no relay holds a delivery that is settled': `
    SELECT event_id, endpoint, state, relay FROM holdfast.deliveries WHERE state <> 'pending' AND relay IS NOT NULL`,
  'I17 a delivery that was confirmed says when, and no other does': `
    SELECT event_id, endpoint, state FROM holdfast.deliveries
    WHERE (state = 'delivered') <> (delivered_at IS NOT NULL)`,
  'I17 no delivery is settled or held without an attempt': `
    SELECT event_id, endpoint, state FROM holdfast.deliveries
    WHERE attempts = 0 AND (state <> 'pending' OR relay IS NOT NULL)`,
  'I12 only a run that ended and behind which nobody spoke waits for an answer': `
    SELECT c.id, c.asked_by FROM holdfast.conversations c LEFT JOIN holdfast.runs r ON r.id = c.asked_by
    WHERE c.asked_by IS NOT NULL AND (r.id IS NULL OR r.conversation_id <> c.id OR r.state <> 'succeeded'
      OR EXISTS (SELECT FROM holdfast.runs n
                 WHERE n.conversation_id = c.id AND n.state IN ('queued', 'running')))`,
  'I18 every run has its client turn, its input, and a message or an answer': `
    SELECT r.id FROM holdfast.runs r WHERE
      NOT EXISTS (SELECT FROM holdfast.client_turns t WHERE t.run_id = r.id AND t.tenant_id = r.tenant_id AND t.user_id = r.user_id)
      OR NOT EXISTS (SELECT FROM holdfast.run_inputs i WHERE i.run_id = r.id)
      OR NOT EXISTS (SELECT FROM holdfast.conversation_messages m WHERE m.run_id = r.id AND m.role IN ('user', 'tool'))
        AND NOT EXISTS (SELECT FROM holdfast.run_inputs i WHERE i.run_id = r.id AND i.resume IS NOT NULL)`,
  'I19 at most one run of a conversation is running': `
    SELECT conversation_id, count(*) FROM holdfast.runs WHERE state = 'running'
    GROUP BY conversation_id HAVING count(*) > 1`,
  'I19 turns begin in order': `
    SELECT r.id, r.turn FROM holdfast.runs r JOIN holdfast.runs b ON b.conversation_id = r.conversation_id
    WHERE b.turn < r.turn AND r.started_at IS NOT NULL AND (b.finished_at IS NULL OR b.finished_at > r.started_at)`,
  'I20 a notification and its deliveries belong to the tenant of the run': `
    SELECT r.id FROM holdfast.runs r JOIN holdfast.outbox o ON o.run_id = r.id
    WHERE o.tenant_id <> r.tenant_id
      OR EXISTS (SELECT FROM holdfast.deliveries d WHERE d.event_id = o.event_id AND d.tenant_id <> r.tenant_id)`,
  'I20 an attachment belongs to the tenant of its conversation': `
    SELECT a.conversation_id, a.id FROM holdfast.attachments a
    JOIN holdfast.conversations c ON c.id = a.conversation_id WHERE c.tenant_id <> a.tenant_id`,
  'I20 what belongs to a run belongs to its tenant': `
    SELECT r.id FROM holdfast.runs r JOIN holdfast.conversations c ON c.id = r.conversation_id
    WHERE c.tenant_id <> r.tenant_id OR c.user_id <> r.user_id
      OR EXISTS (SELECT FROM holdfast.conversation_messages m WHERE m.run_id = r.id AND m.tenant_id <> r.tenant_id)
      OR EXISTS (SELECT FROM holdfast.run_events e WHERE e.run_id = r.id AND e.tenant_id <> r.tenant_id)
      OR EXISTS (SELECT FROM holdfast.artifacts a WHERE a.run_id = r.id AND a.tenant_id <> r.tenant_id)
      OR EXISTS (SELECT FROM holdfast.run_steps s WHERE s.run_id = r.id AND s.tenant_id <> r.tenant_id)`,
}
