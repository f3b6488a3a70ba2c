-- The run whose questions, or whose calls of the front end's own tools, wait for an answer. Set by the ending that asks,
-- taken by the next turn: so neither has to look through a conversation's turns.
ALTER TABLE holdfast.conversations ADD COLUMN asked_by uuid;

UPDATE holdfast.conversations c SET asked_by = r.id
FROM holdfast.runs r JOIN holdfast.run_results x ON x.run_id = r.id
WHERE r.conversation_id = c.id AND r.turn = c.next_turn - 1 AND c.deleted_at IS NULL
  AND (r.outcome = 'interrupt' OR json_array_length(x.terminal -> 'outcome' -> 'pendingToolCallIds') > 0);
