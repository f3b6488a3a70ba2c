-- Which endpoints are told of an ended run is decided once, by the first runner that sees the notification.
-- What ended before there was a relay is not told now.
ALTER TABLE holdfast.outbox ADD COLUMN expanded_at timestamptz;
UPDATE holdfast.outbox SET expanded_at = clock_timestamp();
CREATE INDEX outbox_unexpanded ON holdfast.outbox (created_at) WHERE expanded_at IS NULL;
CREATE INDEX outbox_recent ON holdfast.outbox (tenant_id, event_id DESC);

-- The endpoints that each runner is configured with, so that any runner decides for all.
ALTER TABLE holdfast.runners ADD COLUMN webhook_urls text[] NOT NULL DEFAULT '{}';

-- One notification on its way to one endpoint. A claim counts an attempt and moves the due time to the end of the
-- relay's lease; (relay, attempts) is its fencing token, so what a relay records too late finds nothing.
CREATE TABLE holdfast.deliveries (
  event_id        uuid NOT NULL REFERENCES holdfast.outbox (event_id) ON DELETE CASCADE,
  endpoint        text NOT NULL,
  tenant_id       text NOT NULL,
  origin          text NOT NULL,                 -- scheme, host and port: what is slow or dead together
  configured      boolean NOT NULL,              -- named by WEBHOOK_URLS, so never sent without a signature
  state           text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'dead')),
  attempts        integer NOT NULL DEFAULT 0,
  redriven_after  integer NOT NULL DEFAULT 0,    -- attempts before the last redrive: the schedule counts from here
  next_attempt_at timestamptz,                   -- at first the end of the run, so that what waits longest comes first
  relay           uuid,                          -- boot id of the runner that is sending it
  last_status     integer,
  last_error      text,
  delivered_at    timestamptz,
  PRIMARY KEY (event_id, endpoint),
  CONSTRAINT deliveries_due_while_pending CHECK ((state = 'pending') = (next_attempt_at IS NOT NULL)),
  CONSTRAINT deliveries_held_while_pending CHECK (state = 'pending' OR relay IS NULL),
  CONSTRAINT deliveries_delivered_at CHECK ((state = 'delivered') = (delivered_at IS NOT NULL)),
  CHECK (redriven_after <= attempts)
) WITH (fillfactor = 80);
CREATE INDEX deliveries_due ON holdfast.deliveries (origin, next_attempt_at) WHERE state = 'pending';
CREATE INDEX deliveries_unfinished ON holdfast.deliveries (tenant_id, event_id DESC, state) WHERE state <> 'delivered';
CREATE INDEX deliveries_delivered ON holdfast.deliveries (delivered_at) WHERE state = 'delivered';
