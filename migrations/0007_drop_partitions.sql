-- Forgets the log of one day: the oldest that ended more than `days` days ago and in which no run is unfinished. The runs
-- themselves stay, with their messages and their results. Never waits long for the table, which every append needs.
CREATE FUNCTION holdfast.drop_partition(days integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = holdfast, pg_temp SET lock_timeout = '100ms' AS $$
DECLARE
  partition text;
  day       timestamptz;
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('holdfast.ensure_partitions'));
  FOR partition IN
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'holdfast.run_events'::regclass AND c.relname ~ '^run_events_\d{8}$'
    ORDER BY c.relname
  LOOP
    day := to_date(right(partition, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC';
    EXIT WHEN day + make_interval(days => days + 1) > clock_timestamp();
    CONTINUE WHEN EXISTS (
      SELECT FROM holdfast.runs WHERE state IN ('queued', 'running')
        AND id >= holdfast.uuidv7_floor(day) AND id < holdfast.uuidv7_floor(day + interval '1 day'));
    EXECUTE format('DROP TABLE holdfast.%I', partition);
    RETURN partition;
  END LOOP;
  RETURN NULL;
END $$;
