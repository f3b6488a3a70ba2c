-- What a step's record may become. The statements say it already; this is the last wall behind them.
-- The tables were empty until now, so nothing has to be checked for long.

ALTER TABLE holdfast.run_steps
  ADD CHECK ((outcome IS NULL) = (outcome_at IS NULL)),
  ADD CHECK ((outcome IS NULL) = (outcome_epoch IS NULL)),
  ADD CHECK (outcome_epoch >= intent_epoch);

ALTER TABLE holdfast.run_spans
  ADD CHECK ((outcome IS NULL) = (ended_at IS NULL));

-- The key by which the outside knows the effect never changes, an epoch never falls, and an outcome stays what it is,
-- but for an effect that was undone.
CREATE FUNCTION holdfast.guard_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.idempotency_key <> OLD.idempotency_key THEN
    RAISE EXCEPTION 'step % of run % keeps its idempotency key', OLD.step_key, OLD.run_id USING ERRCODE = 'HF005';
  END IF;
  IF NEW.intent_epoch < OLD.intent_epoch THEN
    RAISE EXCEPTION 'the epoch of step % of run % went back', OLD.step_key, OLD.run_id USING ERRCODE = 'HF006';
  END IF;
  IF OLD.outcome IS NOT NULL AND NOT (OLD.outcome = 'done' AND NEW.outcome = 'compensated') THEN
    RAISE EXCEPTION 'step % of run % has its outcome already', OLD.step_key, OLD.run_id USING ERRCODE = 'HF007';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_step BEFORE UPDATE ON holdfast.run_steps FOR EACH ROW EXECUTE FUNCTION holdfast.guard_step();
