-- Lifecycle events by month. Months are made ahead and dropped after 400 days; what belongs to no month that
-- is there, such as an event of a node whose clock is years wrong, lies in a table of its own until then.
-- They live in a schema that nobody may enter: their rows are seen through lifecycle_events alone.
CREATE SCHEMA history;

CREATE TABLE history.lifecycle_events_other PARTITION OF lifecycle_events DEFAULT;

CREATE FUNCTION sco_make_lifecycle_month(wanted date) RETURNS boolean LANGUAGE plpgsql
  SET search_path = pg_catalog, public AS $$
DECLARE
  first date := date_trunc('month', wanted)::date;
  name text := 'lifecycle_events_' || to_char(wanted, 'YYYYMM');
BEGIN
  IF to_regclass('history.' || name) IS NOT NULL THEN
    RETURN false;
  END IF;
  -- Nobody adds to the other rows while those of the month move out of them.
  LOCK TABLE history.lifecycle_events_other IN ACCESS EXCLUSIVE MODE;
  EXECUTE format('CREATE TABLE history.%I (LIKE public.lifecycle_events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', name);
  EXECUTE format('WITH moved AS (DELETE FROM history.lifecycle_events_other WHERE month = %L RETURNING *)'
    ' INSERT INTO history.%I SELECT * FROM moved', first, name);
  EXECUTE format('ALTER TABLE public.lifecycle_events ATTACH PARTITION history.%I FOR VALUES FROM (%L) TO (%L)',
    name, first, (first + interval '1 month')::date);
  RETURN true;
END $$;

-- The months around a day: the one before it, its own, and two ahead. Returns how many were made and dropped.
CREATE FUNCTION sco_lifecycle_months(today date, OUT made int, OUT dropped int) LANGUAGE plpgsql
  SET search_path = pg_catalog, public SET lock_timeout = '5s' AS $$
DECLARE
  keep_from date := today - 400;
  old text;
BEGIN
  PERFORM pg_advisory_xact_lock(7261004);
  SELECT count(*) FILTER (WHERE sco_make_lifecycle_month((date_trunc('month', today) + n * interval '1 month')::date))
  INTO made FROM generate_series(-1, 2) AS n;
  dropped := 0;
  FOR old IN
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'public.lifecycle_events'::regclass AND c.relname ~ '^lifecycle_events_[0-9]{6}$'
      AND to_date(right(c.relname, 6), 'YYYYMM') + interval '1 month' <= keep_from
    ORDER BY c.relname
  LOOP
    EXECUTE format('DROP TABLE history.%I', old);
    dropped := dropped + 1;
  END LOOP;
  DELETE FROM history.lifecycle_events_other WHERE received_at < keep_from;
END $$;

-- What housekeeping may call: it cannot choose the day, so that nobody drops what is still to be kept.
CREATE FUNCTION sco_tend_lifecycle(OUT made int, OUT dropped int) LANGUAGE sql
  SECURITY DEFINER SET search_path = pg_catalog, public AS $$
  SELECT made, dropped FROM sco_lifecycle_months((now() AT TIME ZONE 'UTC')::date)
$$;
REVOKE ALL ON FUNCTION sco_make_lifecycle_month(date), sco_lifecycle_months(date), sco_tend_lifecycle() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION sco_tend_lifecycle() TO sco_service;

SELECT sco_lifecycle_months((now() AT TIME ZONE 'UTC')::date);
