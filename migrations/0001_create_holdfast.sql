-- Everything lives in the schema `holdfast`, so that it can share a database with others.
-- Plain SQL, forward only; PostgreSQL 14 and later. The migrator runs each file in a transaction of its own.

-- What a state may become, by command: the database's copy of packages/protocol/src/run-state.ts.
CREATE TABLE holdfast.run_transitions (
  from_state text NOT NULL,
  command    text NOT NULL,
  to_state   text NOT NULL,
  PRIMARY KEY (from_state, command)
);
INSERT INTO holdfast.run_transitions (from_state, command, to_state) VALUES
  ('queued',  'claim',     'running'),
  ('queued',  'fail',      'failed'),
  ('queued',  'stop',      'stopped'),
  ('running', 'take_over', 'running'),
  ('running', 'hand_back', 'queued'),
  ('running', 'retry',     'queued'),
  ('running', 'succeed',   'succeeded'),
  ('running', 'fail',      'failed'),
  ('running', 'stop',      'stopped');

CREATE TABLE holdfast.conversations (
  id          uuid PRIMARY KEY,
  tenant_id   text NOT NULL,
  user_id     text NOT NULL,
  external_id text NOT NULL,
  title       text,
  next_turn   integer NOT NULL DEFAULT 1,
  bytes       bigint NOT NULL DEFAULT 0,        -- all messages as one JSON snapshot, counted as they are stored
  state       json,                             -- AG-UI state as the last ended turn left it
  created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  deleted_at  timestamptz
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX conversations_external ON holdfast.conversations (tenant_id, user_id, external_id)
  WHERE deleted_at IS NULL;
CREATE INDEX conversations_recent ON holdfast.conversations (tenant_id, user_id, id DESC) WHERE deleted_at IS NULL;
CREATE INDEX conversations_deleted ON holdfast.conversations (deleted_at) WHERE deleted_at IS NOT NULL;

-- Hot and narrow: lease_until and last_sequence change at every flush and stand in no index, so that
-- those updates stay HOT.
CREATE TABLE holdfast.runs (
  id                  uuid PRIMARY KEY,
  tenant_id           text NOT NULL,
  user_id             text NOT NULL,
  conversation_id     uuid NOT NULL REFERENCES holdfast.conversations (id),
  turn                integer NOT NULL CHECK (turn > 0),
  agent               text NOT NULL,
  state               text NOT NULL DEFAULT 'queued'
                      CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'stopped')),
  execution_epoch     integer NOT NULL DEFAULT 0,
  attempts_used       integer NOT NULL DEFAULT 0,
  max_attempts        integer NOT NULL,
  on_lost             text NOT NULL CHECK (on_lost IN ('restart', 'fail')),
  owner               uuid,
  lease_until         timestamptz,
  last_sequence       bigint NOT NULL DEFAULT 0,
  available_at        timestamptz NOT NULL DEFAULT clock_timestamp(),  -- 'infinity': parked behind another turn
  queue_until         timestamptz,                                     -- a queued run ends then; NULL while parked
  max_queue_ms        bigint NOT NULL,
  deadline_ms         bigint NOT NULL,
  deadline_at         timestamptz,                                     -- set by the first claim, over all attempts
  next_reason         text NOT NULL DEFAULT 'first'
                      CHECK (next_reason IN ('first', 'handback', 'retry')),
  cancel_requested_at timestamptz,
  created_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  started_at          timestamptz,
  finished_at         timestamptz,
  outcome             text CHECK (outcome IN ('success', 'interrupt', 'cancelled', 'error')),
  error_code          text,
  UNIQUE (conversation_id, turn),
  CHECK ((state IN ('succeeded', 'failed', 'stopped')) = (finished_at IS NOT NULL)),
  CHECK ((finished_at IS NOT NULL) = (outcome IS NOT NULL)),
  CHECK (state = 'running' OR owner IS NULL)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE UNIQUE INDEX runs_one_running ON holdfast.runs (conversation_id) WHERE state = 'running';
CREATE INDEX runs_claimable ON holdfast.runs (agent, available_at, id) WHERE state = 'queued';
CREATE INDEX runs_running ON holdfast.runs (id) WHERE state = 'running';
CREATE INDEX runs_unfinished ON holdfast.runs (conversation_id, turn) WHERE state IN ('queued', 'running');
CREATE INDEX runs_queue_until ON holdfast.runs (queue_until) WHERE state = 'queued';
CREATE INDEX runs_queued_marked ON holdfast.runs (id)
  WHERE state = 'queued' AND (cancel_requested_at IS NOT NULL OR attempts_used >= max_attempts);
CREATE INDEX runs_parked ON holdfast.runs (conversation_id, turn)
  WHERE state = 'queued' AND available_at = 'infinity';
CREATE INDEX runs_recent ON holdfast.runs (tenant_id, user_id, id DESC);

-- The last wall behind the statements: illegal edges, an epoch that does not grow with a claim, an epoch or
-- sequence that goes back, and any change to a run that has ended. It sleeps during appends and renewals.
CREATE FUNCTION holdfast.guard_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.state IN ('succeeded', 'failed', 'stopped') THEN
    RAISE EXCEPTION 'run % has ended as % and does not change', OLD.id, OLD.state USING ERRCODE = 'HF001';
  END IF;
  IF NEW.execution_epoch < OLD.execution_epoch OR NEW.last_sequence < OLD.last_sequence THEN
    RAISE EXCEPTION 'epoch or sequence of run % went back', OLD.id USING ERRCODE = 'HF002';
  END IF;
  IF NEW.state <> OLD.state OR NEW.execution_epoch <> OLD.execution_epoch THEN
    IF NOT EXISTS (SELECT FROM holdfast.run_transitions t
                   WHERE t.from_state = OLD.state AND t.to_state = NEW.state) THEN
      RAISE EXCEPTION 'run % cannot go from % to %', OLD.id, OLD.state, NEW.state USING ERRCODE = 'HF003';
    END IF;
    IF NEW.state = 'running' AND NEW.execution_epoch <> OLD.execution_epoch + 1 THEN
      RAISE EXCEPTION 'run % was claimed without a new epoch', OLD.id USING ERRCODE = 'HF004';
    END IF;
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER guard_run BEFORE UPDATE ON holdfast.runs FOR EACH ROW
  WHEN (OLD.state IS DISTINCT FROM NEW.state OR OLD.execution_epoch IS DISTINCT FROM NEW.execution_epoch
        OR NEW.last_sequence < OLD.last_sequence OR OLD.finished_at IS NOT NULL)
  EXECUTE FUNCTION holdfast.guard_run();

-- Wide and cold: what the request asked for.
CREATE TABLE holdfast.run_inputs (
  run_id          uuid PRIMARY KEY,
  tenant_id       text NOT NULL,
  thread_id       text NOT NULL,
  wire_run_id     text NOT NULL,                -- what RUN_STARTED and RUN_FINISHED call the run
  context         json,
  state           json,
  tools           json,
  forwarded_props json,
  history         text NOT NULL DEFAULT 'all' CHECK (history IN ('all', 'complete')),
  effects         text NOT NULL DEFAULT 'unknown' CHECK (effects IN ('none', 'idempotent', 'unknown')),
  notify_url      text
);

-- What is left of an ended run besides its messages; it outlives its events.
CREATE TABLE holdfast.run_results (
  run_id    uuid PRIMARY KEY,
  tenant_id text NOT NULL,
  terminal  json NOT NULL,
  state     json,
  result    json,
  usage     json NOT NULL DEFAULT '[]'
);

-- One client turn is one run for ever; the row outlives the run.
CREATE TABLE holdfast.client_turns (
  tenant_id      text NOT NULL,
  user_id        text NOT NULL,
  client_turn_id text NOT NULL,
  run_id         uuid NOT NULL,
  agent          text,                           -- as the request named it
  named_conversation uuid,
  fingerprint    text NOT NULL,
  created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (tenant_id, user_id, client_turn_id)
);

CREATE TABLE holdfast.conversation_messages (
  conversation_id uuid NOT NULL REFERENCES holdfast.conversations (id),
  turn            integer NOT NULL,
  index           integer NOT NULL,
  tenant_id       text NOT NULL,
  run_id          uuid NOT NULL,
  message_id      text NOT NULL,
  role            text NOT NULL,
  status          text NOT NULL CHECK (status IN ('complete', 'partial')),
  message         json NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (conversation_id, turn, index)
);
CREATE UNIQUE INDEX conversation_messages_id ON holdfast.conversation_messages (conversation_id, message_id);

-- The log. Append only; no foreign key and no second index. Ids are UUIDv7, so a range of run ids is a range
-- of time, and forgetting a day is dropping a table.
CREATE TABLE holdfast.run_events (
  run_id     uuid NOT NULL,
  sequence   bigint NOT NULL CHECK (sequence > 0),
  epoch      integer NOT NULL,
  tenant_id  text NOT NULL,
  type       text NOT NULL,
  payload    json NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (run_id, sequence)
) PARTITION BY RANGE (run_id);

CREATE FUNCTION holdfast.uuidv7_floor(at timestamptz) RETURNS uuid LANGUAGE sql IMMUTABLE AS
$$ SELECT rpad(lpad(to_hex(floor(extract(epoch FROM at) * 1000)::bigint), 12, '0'), 32, '0')::uuid $$;

-- Makes the partitions of yesterday up to `days` ahead; returns how many were missing.
CREATE FUNCTION holdfast.ensure_partitions(days integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = holdfast, pg_temp AS $$
DECLARE
  day  timestamptz;
  name text;
  made integer := 0;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('holdfast.ensure_partitions'));
  FOR i IN -1..days LOOP
    day := (date_trunc('day', clock_timestamp() AT TIME ZONE 'UTC') + make_interval(days => i)) AT TIME ZONE 'UTC';
    name := 'run_events_' || to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD');
    IF to_regclass('holdfast.' || name) IS NULL THEN
      EXECUTE format('CREATE TABLE holdfast.%I PARTITION OF holdfast.run_events FOR VALUES FROM (%L) TO (%L)',
                     name, holdfast.uuidv7_floor(day), holdfast.uuidv7_floor(day + interval '1 day'));
      made := made + 1;
    END IF;
  END LOOP;
  RETURN made;
END $$;

-- Whole days ahead of now that have a partition.
CREATE FUNCTION holdfast.partition_days_ahead() RETURNS integer LANGUAGE plpgsql STABLE AS $$
DECLARE days integer := 0;
BEGIN
  WHILE days < 100 AND to_regclass('holdfast.run_events_' ||
        to_char((clock_timestamp() + make_interval(days => days)) AT TIME ZONE 'UTC', 'YYYYMMDD')) IS NOT NULL LOOP
    days := days + 1;
  END LOOP;
  RETURN days - 1;
END $$;

-- The running answer as far as `sequence`, so that a join costs the tail and not the run.
CREATE TABLE holdfast.run_folds (
  run_id    uuid PRIMARY KEY,
  tenant_id text NOT NULL,
  epoch     integer NOT NULL,
  sequence  bigint NOT NULL,
  fold      json NOT NULL,
  saved_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE holdfast.run_attempts (
  run_id        uuid NOT NULL,
  epoch         integer NOT NULL,
  tenant_id     text NOT NULL,
  runner        uuid NOT NULL,                   -- boot id
  reason        text NOT NULL CHECK (reason IN ('first', 'takeover', 'handback', 'retry', 'ending')),
  base_sequence bigint NOT NULL,                 -- the log's length when it was claimed
  started_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at      timestamptz,
  outcome       text CHECK (outcome IN ('succeeded', 'failed', 'stopped', 'handed_back', 'retried', 'lost')),
  PRIMARY KEY (run_id, epoch),
  CHECK ((ended_at IS NULL) = (outcome IS NULL))
);

CREATE TABLE holdfast.run_checkpoints (
  run_id    uuid PRIMARY KEY,
  tenant_id text NOT NULL,
  epoch     integer NOT NULL,
  sequence  bigint NOT NULL,
  data      json NOT NULL,
  saved_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE holdfast.run_steps (
  run_id          uuid NOT NULL,
  step_key        text NOT NULL,
  tenant_id       text NOT NULL,
  kind            text NOT NULL,
  idempotency_key text NOT NULL,
  policy          text NOT NULL CHECK (policy IN ('retry', 'ask', 'stop')),
  intent_epoch    integer NOT NULL,
  intent_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  outcome_epoch   integer,
  outcome_at      timestamptz,
  outcome         text CHECK (outcome IN ('done', 'failed', 'compensated')),
  result          json,
  PRIMARY KEY (run_id, step_key)
);

CREATE TABLE holdfast.run_spans (
  run_id     uuid NOT NULL,
  epoch      integer NOT NULL,
  span_key   text NOT NULL,
  tenant_id  text NOT NULL,
  kind       text NOT NULL,
  parent     text,
  started_at timestamptz NOT NULL,
  ended_at   timestamptz,
  outcome    text CHECK (outcome IN ('done', 'failed', 'cancelled', 'in_doubt')),
  PRIMARY KEY (run_id, epoch, span_key)
);

CREATE TABLE holdfast.artifacts (
  run_id     uuid NOT NULL,
  name       text NOT NULL,
  tenant_id  text NOT NULL,
  epoch      integer NOT NULL,
  path       text NOT NULL,
  media_type text NOT NULL,
  bytes      bigint NOT NULL,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (run_id, name)
);

-- One logical notification per ended run, from the transaction that ended it.
CREATE TABLE holdfast.outbox (
  event_id   uuid PRIMARY KEY,
  run_id     uuid NOT NULL UNIQUE,
  tenant_id  text NOT NULL,
  type       text NOT NULL CHECK (type IN ('run.succeeded', 'run.failed', 'run.stopped')),
  payload    json NOT NULL,
  notify_url text,
  created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE holdfast.runners (
  boot_id     uuid PRIMARY KEY,
  name        text NOT NULL,
  pid         integer NOT NULL,
  agents      text[] NOT NULL,
  capacity    integer NOT NULL,
  running     integer NOT NULL DEFAULT 0,
  draining    boolean NOT NULL DEFAULT false,
  metrics_url text,
  started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  last_seen   timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- What agents there are and what they allow; outlives the runners that know how to run them.
CREATE TABLE holdfast.agents (
  name        text PRIMARY KEY,
  type        text NOT NULL,
  is_default  boolean NOT NULL DEFAULT false,
  limits      json NOT NULL,
  recorded_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Every write that the fence refused.
CREATE TABLE holdfast.stale_writes (
  id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  run_id        uuid NOT NULL,
  tenant_id     text NOT NULL,
  operation     text NOT NULL,
  epoch         integer NOT NULL,
  current_epoch integer NOT NULL,
  runner        uuid NOT NULL,
  late_ms       bigint,
  refused_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX stale_writes_run ON holdfast.stale_writes (run_id);

SELECT holdfast.ensure_partitions(14);
