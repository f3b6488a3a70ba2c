-- What a turn answers of the turn before it, and which turns are not shown any more.

ALTER TABLE holdfast.run_inputs
  ADD COLUMN resume json,        -- AG-UI ResumeEntry[]: what became of the interrupts before this turn
  ADD COLUMN open_calls json;    -- calls of earlier turns that this run's agent is to answer

-- A turn that replaces: of its conversation, the turns from `from_turn` up to its own are shown to it and to those
-- behind it no longer. Nothing is deleted, and what was shown before stays as it was for those who saw it.
CREATE TABLE holdfast.replacements (
  conversation_id uuid NOT NULL REFERENCES holdfast.conversations (id),
  by_turn         integer NOT NULL,
  from_turn       integer NOT NULL,
  tenant_id       text NOT NULL,
  PRIMARY KEY (conversation_id, by_turn),
  CHECK (from_turn > 0 AND from_turn < by_turn)
);
